-- A vision transformer that tells drawn shapes apart (shapes.lua draws them from a seed).
--   sgl train examples/vit.lua
--   sgl train examples/vit.lua --set layers=6

local sgl = require "sgl"
local shapes = require "shapes"
local nn, optim = sgl.nn, sgl.optim

local cfg = sgl.config {
  patch = 4, dim = 64, layers = 4, heads = 4, dropout = 0.0, -- the model
  image = 16, batch = 64, seed = 1,       -- the data
  steps = 600, lr = 1e-3, warmup = 30, weight_decay = 0.05, clip = 1.0, micro = 1,
}

local model = sgl.models.vit {
  image = cfg.image, patch = cfg.patch, channels = 1, classes = shapes.classes, dim = cfg.dim, layers = cfg.layers,
  heads = cfg.heads, dropout = cfg.dropout,
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
