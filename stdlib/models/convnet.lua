--- models.convnet: a residual network of 3 x 3 convolutions (He et al., arXiv:1603.05027): a stem, stages of `blocks`
--- blocks each with twice the channels and half the places of the one before, the mean over all places, a linear head.
--- Comes in: images [n, height, width, channels]. Goes out: logits [n, classes].
--- With norm = "batch" the images of a batch are coupled; `group` says how many (nn.batch_norm).

local check = require "sgl.check"
local core = require "sgl.core"
local nn = require "sgl.nn"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

local function conv(input, output, size, stride)
  return nn.conv2d(input, output, size, {
    stride = stride, padding = "same", bias = false, init = nn.init.normal((2 / (input * size * size)) ^ 0.5),
  })
end

---@param cfg { channels: integer, classes: integer, width: integer, stages: integer, blocks: integer, norm: "batch"|"group"|nil, group: integer?, groups: integer? } width: channels of the first stage; norm: default batch; groups: of channels, for norm = "group", default 8
---@return sgl.module
return function(cfg)
  cfg = check.fields("models.convnet", cfg, {
    channels = "size", classes = "size", width = "size", stages = "size", blocks = "size", norm = "text?",
    group = "size?", groups = "size?",
  })
  local kind = cfg.norm or "batch"
  if kind ~= "batch" and kind ~= "group" then
    core.error(("models.convnet: norm must be 'batch' or 'group', not '%s'"):format(kind))
  end
  local function norm(channels)
    if kind == "group" then return nn.group_norm(cfg.groups or 8, channels) end
    return nn.batch_norm(channels, { group = cfg.group })
  end

  local function block(input, output, stride)
    local norm1, conv1 = norm(input), conv(input, output, 3, stride)
    local norm2, conv2 = norm(output), conv(output, output, 3, 1)
    local skip = (input ~= output or stride > 1) and conv(input, output, 1, stride) or nil
    local children = { norm1 = norm1, conv1 = conv1, norm2 = norm2, conv2 = conv2, skip = skip }
    return nn.module("block", children, function(x)
      local y = ops.relu(norm1(x))
      return (skip and skip(y) or x) + conv2(ops.relu(norm2(conv1(y))))
    end)
  end

  local stem, blocks, width = conv(cfg.channels, cfg.width, 3, 1), {}, cfg.width
  for stage = 1, cfg.stages do
    for i = 1, cfg.blocks do
      local halves = stage > 1 and i == 1
      blocks[#blocks + 1] = block(width, halves and 2 * width or width, halves and 2 or 1)
      if halves then width = 2 * width end
    end
  end
  local last, head = norm(width), nn.linear(width, cfg.classes, { bias = true })
  return nn.module("convnet", { stem = stem, blocks = blocks, norm = last, head = head }, function(images)
    local x = stem(ops.cast(images, trace.dtype()))
    for _, one in ipairs(blocks) do x = one(x) end
    return head(ops.mean(ops.relu(last(x)), { 1, 2 }))
  end)
end
