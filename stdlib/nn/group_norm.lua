--- nn.group_norm: (x - mean) / sqrt(variance + eps) * gain + bias, the mean and variance those of a group of channels
--- of one sample, at all its places (Wu, He, arXiv:1803.08494).
--- Comes in: x [n, s..., channels]. Goes out: the same shape. Weight (the gain) and bias [channels].

local core = require "sgl.core"
local check = require "sgl.check"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"

---@param groups integer
---@param channels integer a multiple of groups
---@param options { eps: number? }? default 1e-5
---@return sgl.module
return function(groups, channels, options)
  check.value("group_norm", "groups", "size", groups)
  check.value("group_norm", "channels", "size", channels)
  if channels % groups ~= 0 then
    core.error(("group_norm: channels (%d) is no multiple of groups (%d)"):format(channels, groups))
  end
  local eps = check.options("group_norm", options, { eps = "positive?" }).eps or 1e-5
  local weight = base.parameter { channels, init = initial.ones }
  local bias = base.parameter { channels, init = initial.zeros }
  local kind = ("group_norm(%d, %d)"):format(groups, channels)
  return base.module(kind, { weight = weight, bias = bias }, function(x)
    local dims = ops.shape(x)
    if #dims < 2 or dims[#dims] ~= channels then
      core.error(("group_norm: x must be [n, ..., %d], not %s"):format(channels, tostring(x)))
    end
    local places = 1
    for i = 2, #dims - 1 do places = places * dims[i] end
    local grouped = ops.reshape(x, dims[1], places, groups, channels // groups)
    local centred = grouped - ops.mean(grouped, { 1, 3 }, true)
    local normed = centred * ops.rsqrt(ops.mean(centred * centred, { 1, 3 }, true) + eps)
    return ops.reshape(normed, dims) * weight() + bias()
  end)
end
