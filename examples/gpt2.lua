-- GPT-2: the 124M model by default; smaller ones by --set.
--   sgl train examples/gpt2.lua --data TOKENS.bin                     uint16 tokens, raw or headed as llm.c's
--   sgl train examples/gpt2.lua --data TEXT --set bytes=true --set dim=128 --set layers=4 --set heads=4 --set seq=64

local sgl = require "sgl"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data

local cfg = sgl.config {
  vocab = 50257, dim = 768, layers = 12, heads = 12, -- the model
  seq = 64, batch = 4, tokens = "", bytes = false,   -- the data; bytes: any text, with a vocabulary of 256
  steps = 1000, lr = 6e-4, warmup = 100, weight_decay = 0.1, clip = 1.0, dropout = 0.0, micro = 1,
}

local model = sgl.models.gpt2 {
  vocab = cfg.bytes and 256 or cfg.vocab, dim = cfg.dim, layers = cfg.layers, heads = cfg.heads, seq = cfg.seq,
  dropout = cfg.dropout,
}

return sgl.job {
  model = model,
  loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = cfg.bytes and data.text { path = cfg.tokens, seq = cfg.seq, batch = cfg.batch }
    or data.tokens { path = cfg.tokens, vocab = cfg.vocab, seq = cfg.seq, batch = cfg.batch },
  optim = optim.adamw {
    lr = optim.warmup_cosine { peak = cfg.lr, warmup = cfg.warmup }, weight_decay = cfg.weight_decay, clip = cfg.clip,
  },
  plan = sgl.plan { mesh = { dp = 1 }, micro = cfg.micro, precision = "fp32" },
  steps = cfg.steps, eval_every = 250, eval_batches = 32,
}
