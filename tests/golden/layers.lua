-- The model of the golden curve layers.json, as make_models.py has it: layers in forms that the models leave out
-- (groups, dilation, strides, one dimension, transposed convolutions, ghost batches). Batches come from the test.
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { micro = 1, precision = "fp64", steps = 50 }

local conv = nn.conv2d(3, 8, 3, { padding = 1 })
local group_norm = nn.group_norm(2, 8)
local average = nn.avg_pool(2, { stride = 2, padding = 1, count_include_pad = false })
local wide = nn.conv2d(8, 12, { 3, 2 }, {
  stride = { 1, 2 }, dilation = { 2, 1 }, padding = { 1, 1 }, groups = 2, bias = false,
})
local up = nn.conv_transpose2d(12, 10, 3, { stride = 2, padding = 1, output_padding = { 1, 0 }, groups = 2 })
local line = nn.conv1d(10, 8, 3, { stride = 2, bias = false }) -- the mean that batch_norm takes off would take a bias
local batch_norm = nn.batch_norm(8, { momentum = 0.2, group = 2 })
local largest = nn.max_pool(3, { stride = 2 })
local stretch = nn.conv_transpose1d(8, 8, 2, { stride = 2 })
local ffn, head = nn.geglu(8, 12), nn.linear(8, 5, { bias = true })

local model = nn.module("layers", {
  conv = conv, group_norm = group_norm, average = average, wide = wide, up = up, line = line, batch_norm = batch_norm,
  largest = largest, stretch = stretch, ffn = ffn, head = head,
}, function(images)
  images = images:cast(cfg.precision == "fp64" and "f64" or "f32")
  local x = average(sgl.mish(group_norm(conv(images))))
  x = sgl.elu(up(sgl.leaky_relu(wide(x))))
  x = line(x:reshape(x:shape(0), -1, x:shape(3)))
  x = stretch(largest(batch_norm(x)))
  return head((x + ffn(x)):mean(1))
end)

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
