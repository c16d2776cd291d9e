--- nn.batch_norm: (x - mean) / sqrt(variance + eps) * gain + bias, the mean and variance those of a channel in a group
--- of samples (Ioffe, Szegedy, arXiv:1502.03167).
--- Comes in: x [n, s..., channels]. Goes out: the same shape. Weight (the gain) and bias [channels]; buffers
--- running_mean and running_var [channels] follow the statistics while training and take their place otherwise.
--- Padding of an sgl.dim along dimension 1 is in no statistics.
--- This layer couples samples. `group` names how many: by default all n, also where the plan cuts the batch into
--- micro-batches, which then wait for one another in each such layer; with group = g every g samples that follow each
--- other have statistics of their own (Hoffer et al., arXiv:1705.08741), and micro-batches of a multiple of g are free.

local core = require "sgl.core"
local check = require "sgl.check"
local dims_of = require "sgl.dim"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

-- x as [groups, samples, s..., channels], and how many numbers a mean is over.
local function grouped(x, group)
  local dims = ops.shape(x)
  local samples = group or dims[1]
  if dims[1] % samples ~= 0 then
    core.error(("batch_norm: %d samples are no multiple of the group of %d"):format(dims[1], samples))
  end
  local shape, count = { dims[1] // samples, samples }, samples
  for i = 2, #dims do shape[i + 1] = dims[i] end
  for i = 2, #dims - 1 do count = count * dims[i] end
  return ops.reshape(x, shape), count
end

-- Mean and variance of each channel over what is no padding along dimension 1, how many numbers that is, and x - mean.
local function without_padding(x, entry)
  local dims, axes, shape, others = ops.shape(x), { 0 }, { entry.rows, entry.extent }, 1
  for axis = 1, #dims - 2 do axes[axis + 1] = axis end
  for axis = 2, #dims - 1 do shape[axis + 1] = 1 end
  for axis = 3, #dims - 1 do others = others * dims[axis] end
  local mask = ops.reshape(entry.mask, shape)
  local count = ops.sum(ops.cast(mask, core.dtype(x))) * others
  local mean = ops.sum(ops.select(mask, x, 0), axes, true) / count
  local centred = x - mean
  local held = ops.select(mask, centred, 0)
  return mean, ops.sum(held * held, axes, true) / count, count, centred
end

-- Moves a buffer towards the mean of the groups' statistics [groups, channels].
local function follow(buffer, statistics, momentum)
  buffer:update(function(old) return old + (ops.mean(statistics, 0) - old) * momentum end)
end

---@param channels integer
---@param options { eps: number?, momentum: number?, group: integer? }? eps: 1e-5; momentum: 0.1, how far the running statistics move in a step; group: samples that are normalized together, default all
---@return sgl.module
return function(channels, options)
  check.value("batch_norm", "channels", "size", channels)
  options = check.options("batch_norm", options, { eps = "positive?", momentum = "positive?", group = "size?" })
  local eps, momentum = options.eps or 1e-5, options.momentum or 0.1
  if momentum > 1 then core.error(("batch_norm: momentum must be at most 1, not %g"):format(momentum)) end
  local weight = base.parameter { channels, init = initial.ones }
  local bias = base.parameter { channels, init = initial.zeros }
  local running_mean = base.buffer { channels, init = initial.zeros }
  local running_var = base.buffer { channels, init = initial.ones }

  local function by_rows(x, entry)
    if options.group then
      core.error(("batch_norm: rows of '%s' are normalized together: leave group out"):format(entry.dim.name))
    end
    local mean, variance, count, centred = without_padding(x, entry)
    follow(running_mean, ops.reshape(mean, 1, channels), momentum)
    follow(running_var, ops.reshape(variance, 1, channels) * (count / ops.maximum(count - 1, 1)), momentum)
    return centred * ops.rsqrt(variance + eps)
  end

  local function by_batch(x)
    local entry = dims_of.whole(x)
    if entry then return by_rows(x, entry) end
    local parts, count = grouped(x, options.group)
    local axes = {}
    for axis = 1, core.rank(parts) - 2 do axes[axis] = axis end
    if count < 2 then core.error("batch_norm: of one number its mean leaves nothing; a larger batch is needed") end
    local mean = ops.mean(parts, axes, true)
    local centred = parts - mean
    local variance = ops.mean(centred * centred, axes, true)
    local flat = { ops.shape(parts, 0), channels }
    follow(running_mean, ops.reshape(mean, flat), momentum)
    follow(running_var, ops.reshape(variance, flat) * (count / (count - 1)), momentum)
    return ops.reshape(centred * ops.rsqrt(variance + eps), ops.shape(x))
  end

  local kind = options.group and ("batch_norm(%d, group=%d)"):format(channels, options.group)
    or ("batch_norm(%d)"):format(channels)
  local children = { weight = weight, bias = bias, running_mean = running_mean, running_var = running_var }
  return base.module(kind, children, function(x)
    if core.rank(x) < 2 or ops.shape(x, -1) ~= channels then
      core.error(("batch_norm: x must be [n, ..., %d], not %s"):format(channels, tostring(x)))
    end
    local normed = trace.mode() == "train" and by_batch(x) or (x - running_mean()) * ops.rsqrt(running_var() + eps)
    return normed * weight() + bias()
  end)
end
