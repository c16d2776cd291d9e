--- models.moe: a Llama whose feed-forward blocks are experts (Jiang et al., arXiv:2401.04088): nn.moe in the place of
--- SwiGLU.
--- Comes in: integer tokens [batch, t]. Goes out: logits [batch, t, vocab], not multiplied out. What the balance of the
--- experts adds to the loss stands in nn.auxiliary_loss.

local check = require "sgl.check"
local nn = require "sgl.nn"

---@param cfg { vocab: integer, dim: integer, layers: integer, heads: integer, kv_heads: integer?, ffn: integer, experts: integer, top_k: integer, capacity: number?, group: string?, balance: number?, z_loss: number?, bias_rate: number?, rope: number|table|nil, dropout: number? } ffn: hidden numbers of one expert; the others as of nn.moe and models.llama
---@return sgl.module
return function(cfg)
  cfg = check.fields("models.moe", cfg, {
    vocab = "size", dim = "size", layers = "size", heads = "size", kv_heads = "size?", ffn = "size", experts = "size",
    top_k = "size", capacity = "positive?", group = "text?", balance = "rate?", z_loss = "rate?", bias_rate = "rate?",
    rope = "any?", dropout = "share?",
  })
  local depth = (2 * cfg.layers) ^ -0.5 -- what adds to the residual stream starts smaller in deep models
  local function block()
    local attn = nn.attention {
      dim = cfg.dim, heads = cfg.heads, kv_heads = cfg.kv_heads, rope = cfg.rope or 1e4, causal = true,
      init_out = nn.init.normal(depth * cfg.dim ^ -0.5),
    }
    local moe = nn.moe {
      dim = cfg.dim, hidden = cfg.ffn, experts = cfg.experts, top_k = cfg.top_k, capacity = cfg.capacity,
      group = cfg.group, balance = cfg.balance, z_loss = cfg.z_loss, bias_rate = cfg.bias_rate,
      init_out = nn.init.normal(depth * cfg.ffn ^ -0.5),
    }
    local norm1, norm2, drop = nn.rms_norm(cfg.dim), nn.rms_norm(cfg.dim), nn.dropout(cfg.dropout or 0)
    return nn.module("block", { norm1 = norm1, attn = attn, norm2 = norm2, moe = moe, drop = drop }, function(x)
      x = x + drop(attn(norm1(x)))
      return x + drop(moe(norm2(x)))
    end)
  end

  local embed, blocks, norm = nn.embedding(cfg.vocab, cfg.dim), nn.stack(cfg.layers, block), nn.rms_norm(cfg.dim)
  return nn.module("moe", { embed = embed, blocks = blocks, norm = norm }, function(tokens)
    return nn.tied_head(embed, norm(blocks(embed(tokens))))
  end)
end
