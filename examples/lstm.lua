-- Recurrent layers that learn a text, byte by byte.
--   sgl train examples/lstm.lua --data FILE
--   sgl train examples/lstm.lua --data FILE --set cell=gru
--   sgl generate lstm.run --prompt "In the beginning"

local sgl = require "sgl"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data

local cfg = sgl.config {
  vocab = 256, dim = 64, hidden = 256, layers = 2, cell = "lstm", dropout = 0.0, -- the model; cell: "lstm" or "gru"
  seq = 64, batch = 32, text = "", -- the data: `batch` sequences of `seq` bytes a step
  steps = 400, lr = 3e-3, warmup = 50, weight_decay = 0.01, clip = 1.0, micro = 1,
}

local model = sgl.models.lstm(cfg)

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
