-- The residual network of the golden curve convnet.json: sizes and schedule as make_models.py has them. Batches come
-- from the test.
local sgl = require "sgl"
local cfg = sgl.config { micro = 1, precision = "fp64", steps = 50 }

local model = sgl.models.convnet { channels = 3, classes = 5, width = 6, stages = 2, blocks = 1 }

return sgl.job {
  model = model,
  loss = function(batch) return sgl.nn.cross_entropy(model(batch.images), batch.labels) end,
  data = sgl.data.batches {
    feeds = { images = { dtype = "f32", dims = { 6, 8, 8, 3 } }, labels = { dtype = "i32", dims = { 6 } } },
    next = function() return nil end,
  },
  optim = sgl.optim.adamw {
    lr = sgl.optim.warmup_cosine { peak = 3e-3, warmup = 10, final = 3e-4 }, weight_decay = 0.1, clip = 1.0,
  },
  plan = sgl.plan { micro = cfg.micro, precision = cfg.precision },
  steps = cfg.steps,
}
