--- models.gpt2: a decoder of pre-normed blocks with learnt positions, biases, GELU, and a tied head (Radford et al.,
--- 2019).
--- Comes in: integer tokens [batch, t], t at most seq. Goes out: logits [batch, t, vocab], not multiplied out.

local check = require "sgl.check"
local nn = require "sgl.nn"

---@param cfg { vocab: integer, dim: integer, layers: integer, heads: integer, seq: integer, dropout: number? }
---@return sgl.module
return function(cfg)
  cfg = check.fields("models.gpt2", cfg, {
    vocab = "size", dim = "size", layers = "size", heads = "size", seq = "size", dropout = "share?",
  })
  local init, init_out = nn.init.normal(0.02), nn.init.normal(0.02 * (2 * cfg.layers) ^ -0.5)
  local function block()
    local attn = nn.attention {
      dim = cfg.dim, heads = cfg.heads, bias = true, causal = true, init = init, init_out = init_out,
    }
    local mlp = nn.mlp(cfg.dim, 4 * cfg.dim, { activation = "gelu", init = init, init_out = init_out })
    local norm1, norm2, drop = nn.layer_norm(cfg.dim), nn.layer_norm(cfg.dim), nn.dropout(cfg.dropout or 0)
    return nn.module("block", { norm1 = norm1, attn = attn, norm2 = norm2, mlp = mlp, drop = drop }, function(x)
      x = x + drop(attn(norm1(x)))
      return x + drop(mlp(norm2(x)))
    end)
  end

  local wte, wpe, drop = nn.embedding(cfg.vocab, cfg.dim), nn.position(cfg.seq, cfg.dim), nn.dropout(cfg.dropout or 0)
  local blocks, norm = nn.stack(cfg.layers, block), nn.layer_norm(cfg.dim)
  return nn.module("gpt2", { wte = wte, wpe = wpe, drop = drop, blocks = blocks, norm = norm }, function(tokens)
    return nn.tied_head(wte, norm(blocks(drop(wpe(wte(tokens))))))
  end)
end
