-- The Llama of the golden curve (llama.json): sizes and schedule as make_curves.py has them. Batches come from the
-- test.
local sgl = require "sgl"
local cfg = sgl.config { micro = 1, precision = "fp64", steps = 50 }

local model = sgl.models.llama { vocab = 67, dim = 48, layers = 3, heads = 6, kv_heads = 2, ffn = 80 }
local feed = { dtype = "i32", dims = { 4, 24 } }

return sgl.job {
  model = model,
  loss = function(batch) return sgl.nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.batches { feeds = { tokens = feed, targets = feed }, next = function() return nil end },
  optim = sgl.optim.adamw {
    lr = sgl.optim.warmup_cosine { peak = 3e-3, warmup = 10, final = 3e-4 }, weight_decay = 0.1, clip = 1.0,
  },
  plan = sgl.plan { micro = cfg.micro, precision = cfg.precision },
  steps = cfg.steps,
}
