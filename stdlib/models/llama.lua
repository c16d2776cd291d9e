--- models.llama: a decoder of pre-normed blocks with rotary positions, grouped key and value heads, SwiGLU, and a tied
--- head (Touvron et al., arXiv:2302.13971).
--- Comes in: integer tokens [batch, t], and for packed sequences the document of each, integers [batch, t]. Goes out:
--- logits [batch, t, vocab], not multiplied out.

local check = require "sgl.check"
local nn = require "sgl.nn"

---@param cfg { vocab: integer, dim: integer, layers: integer, heads: integer, kv_heads: integer?, ffn: integer, rope: number|table|nil, dropout: number?, window: integer?, qk_norm: boolean? } rope: theta, default 1e4, or nn.rope's options
---@return sgl.module
return function(cfg)
  cfg = check.fields("models.llama", cfg, {
    vocab = "size", dim = "size", layers = "size", heads = "size", kv_heads = "size?", ffn = "size", rope = "any?",
    dropout = "share?", window = "size?", qk_norm = "flag?",
  })
  local depth = (2 * cfg.layers) ^ -0.5 -- what adds to the residual stream starts smaller in deep models
  local function block()
    local attn = nn.attention {
      dim = cfg.dim, heads = cfg.heads, kv_heads = cfg.kv_heads, rope = cfg.rope or 1e4, causal = true,
      window = cfg.window, qk_norm = cfg.qk_norm,
      init_out = nn.init.normal(depth * cfg.dim ^ -0.5),
    }
    local ffn = nn.swiglu(cfg.dim, cfg.ffn, { init_out = nn.init.normal(depth * cfg.ffn ^ -0.5) })
    local norm1, norm2, drop = nn.rms_norm(cfg.dim), nn.rms_norm(cfg.dim), nn.dropout(cfg.dropout or 0)
    return nn.module("block", { norm1 = norm1, attn = attn, norm2 = norm2, ffn = ffn, drop = drop }, function(x, call)
      x = x + drop(attn(norm1(x), call))
      return x + drop(ffn(norm2(x)))
    end)
  end

  local embed, blocks, norm = nn.embedding(cfg.vocab, cfg.dim), nn.stack(cfg.layers, block), nn.rms_norm(cfg.dim)
  return nn.module("llama", { embed = embed, blocks = blocks, norm = norm }, function(tokens, documents)
    return nn.tied_head(embed, norm(blocks(embed(tokens), documents and { documents = documents })))
  end)
end
