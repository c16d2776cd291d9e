-- A Llama of experts that learns a text, byte by byte. In the log stand each expert's share of the choices and what was
-- dropped; over the last 50 steps each of the eight holds 10.6 to 14.5% in every layer, and 0.1% are dropped.
--   sgl train examples/moe.lua --data FILE --log FILE
--   sgl train examples/moe.lua --data FILE --set balance=0 --set bias_rate=0.001     balance by the bias alone

local sgl = require "sgl"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data

local cfg = sgl.config {
  vocab = 256, dim = 128, layers = 4, heads = 4, kv_heads = 2, ffn = 192, -- the model
  experts = 8, top_k = 2, capacity = 1.5, balance = 0.01, z_loss = 0.001, bias_rate = 0.0,
  seq = 128, batch = 16, text = "", -- the data: `batch` sequences of `seq` bytes a step
  steps = 400, lr = 3e-3, warmup = 50, weight_decay = 0.1, clip = 1.0, micro = 1,
}

local model = sgl.models.moe(cfg)

return sgl.job {
  model = model,
  loss = function(batch)
    local mean, count = nn.cross_entropy(model(batch.tokens), batch.targets)
    return mean + nn.auxiliary_loss(), count
  end,
  data = data.text { path = cfg.text, vocab = cfg.vocab, seq = cfg.seq, batch = cfg.batch, held_out = 0.05 },
  optim = optim.adamw {
    lr = optim.warmup_cosine { peak = cfg.lr, warmup = cfg.warmup }, weight_decay = cfg.weight_decay, clip = cfg.clip,
  },
  plan = sgl.plan { mesh = { dp = 1 }, micro = cfg.micro, precision = "fp32" },
  steps = cfg.steps, eval_every = 100, eval_batches = 32,
}
