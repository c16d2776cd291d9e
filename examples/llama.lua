-- A small Llama that learns a text, byte by byte.
--   sgl train examples/llama.lua --data FILE                          a minute on two cores
--   sgl train examples/llama.lua --data FILE --set dim=384 --set layers=6
--   sgl generate llama.run --prompt "In the beginning"

local sgl = require "sgl"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data

local cfg = sgl.config { -- any field: sgl train llama.lua --set layers=12
  vocab = 256, dim = 128, layers = 4, heads = 4, kv_heads = 2, ffn = 384, -- the model: 0.8 million parameters
  seq = 128, batch = 16, text = "", -- the data: `batch` sequences of `seq` bytes a step
  steps = 400, lr = 3e-3, warmup = 50, weight_decay = 0.1, clip = 1.0, dropout = 0.0, micro = 1,
  recompute = 0, -- so many blocks keep their input alone; the backward makes the rest again
}

local depth = (2 * cfg.layers) ^ -0.5 -- what adds to the residual stream starts smaller in deep models

local function block()
  local attn = nn.attention {
    dim = cfg.dim, heads = cfg.heads, kv_heads = cfg.kv_heads, rope = 1e4, causal = true,
    init_out = nn.init.normal(depth * cfg.dim ^ -0.5),
  }
  local ffn = nn.swiglu(cfg.dim, cfg.ffn, { init_out = nn.init.normal(depth * cfg.ffn ^ -0.5) })
  local norm1, norm2, drop = nn.rms_norm(cfg.dim), nn.rms_norm(cfg.dim), nn.dropout(cfg.dropout)
  return nn.module("block", { norm1 = norm1, attn = attn, norm2 = norm2, ffn = ffn, drop = drop }, function(x)
    x = x + drop(attn(norm1(x)))
    return x + drop(ffn(norm2(x)))
  end)
end

local embed, norm = nn.embedding(cfg.vocab, cfg.dim), nn.rms_norm(cfg.dim)
local blocks = nn.stack(cfg.layers, block, { recompute = cfg.recompute })
local model = nn.module("llama", { embed = embed, blocks = blocks, norm = norm }, function(tokens)
  return nn.tied_head(embed, norm(blocks(embed(tokens))))
end)

return sgl.job {
  model = model,
  loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = data.text { path = cfg.text, vocab = cfg.vocab, seq = cfg.seq, batch = cfg.batch, held_out = 0.05 },
  optim = optim.adamw {
    lr = optim.warmup_cosine { peak = cfg.lr, warmup = cfg.warmup }, weight_decay = cfg.weight_decay, clip = cfg.clip,
  },
  plan = sgl.plan { mesh = { dp = 1 }, micro = cfg.micro, precision = "fp32" },
  steps = cfg.steps, eval_every = 100, eval_batches = 32,
}
