-- Adapters of low rank on a Llama that has learnt a text already; they alone learn another text.
--   sgl train examples/llama.lua --data FILE --out llama.run
--   sgl train examples/lora.lua --data OTHER --init-from llama.run --out lora.run
--   sgl generate lora.run --prompt "In the beginning"
--   sgl export lora.run --out merged.safetensors                      a Llama again: --init-from takes it

local sgl = require "sgl"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data

local cfg = sgl.config { -- the sizes are those of the run that --init-from names
  vocab = 256, dim = 128, layers = 4, heads = 4, kv_heads = 2, ffn = 384, seq = 128, batch = 16, text = "",
  rank = 8, alpha = 16, match = "blocks.*.attn.*", steps = 200, lr = 3e-3, warmup = 20,
}

local model = sgl.models.llama {
  vocab = cfg.vocab, dim = cfg.dim, layers = cfg.layers, heads = cfg.heads, kv_heads = cfg.kv_heads, ffn = cfg.ffn,
}
sgl.lora(model, { rank = cfg.rank, alpha = cfg.alpha, match = cfg.match })

return sgl.job {
  model = model,
  loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = data.text { path = cfg.text, vocab = cfg.vocab, seq = cfg.seq, batch = cfg.batch, held_out = 0.05 },
  optim = optim.adamw { lr = optim.warmup_cosine { peak = cfg.lr, warmup = cfg.warmup }, clip = 1.0 },
  steps = cfg.steps, eval_every = 100, eval_batches = 32,
}
