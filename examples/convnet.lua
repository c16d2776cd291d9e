-- A small residual network that tells drawn shapes apart (shapes.lua draws them from a seed).
--   sgl train examples/convnet.lua
--   sgl train examples/convnet.lua --set norm=group

local sgl = require "sgl"
local shapes = require "shapes"
local nn, optim = sgl.nn, sgl.optim

local cfg = sgl.config {
  width = 16, stages = 3, blocks = 1, norm = "batch", -- the model; norm: "batch" or "group"
  image = 16, batch = 64, seed = 1,       -- the data
  steps = 150, lr = 3e-3, warmup = 30, weight_decay = 0.05, clip = 1.0, micro = 1,
}

local model = sgl.models.convnet {
  channels = 1, classes = shapes.classes, width = cfg.width, stages = cfg.stages, blocks = cfg.blocks, norm = cfg.norm,
}

return sgl.job {
  model = model,
  loss = function(batch)
    local logits = model(batch.images)
    sgl.log("accuracy", sgl.mean(sgl.cast(sgl.equal(sgl.argmax(logits, -1), batch.labels), "f32")))
    return nn.cross_entropy(logits, batch.labels)
  end,
  data = shapes.data { image = cfg.image, batch = cfg.batch, seed = cfg.seed },
  optim = optim.adamw {
    lr = optim.warmup_cosine { peak = cfg.lr, warmup = cfg.warmup }, weight_decay = cfg.weight_decay, clip = cfg.clip,
  },
  plan = sgl.plan { mesh = { dp = 1 }, micro = cfg.micro, precision = "fp32" },
  steps = cfg.steps, eval_every = 100, eval_batches = 16,
}
