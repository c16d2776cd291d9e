--- nn.init: how a parameter gets its first value.
--- Comes in: numbers. Goes out: functions of (dims, dtype, seed, id) that make a tensor in the init graph; random ones
--- are the same numbers wherever and in whatever part they are computed.

local core = require "sgl.core"
local check = require "sgl.check"
local ops = require "sgl.ops"

local initial = {}

--- Normal numbers with mean 0 and the given standard deviation.
---@param std number
---@return fun(dims: integer[], dtype: string, seed: sgl.tensor, id: integer): sgl.tensor
function initial.normal(std)
  check.value("init.normal", "std", "rate", std)
  return function(dims, dtype, seed, id)
    local zero = core.constant(0, "i64")
    return ops.random_normal(seed, zero, zero, id, dims, dtype) * std
  end
end

--- Uniform numbers in [-bound, bound).
---@param bound number
---@return fun(dims: integer[], dtype: string, seed: sgl.tensor, id: integer): sgl.tensor
function initial.uniform(bound)
  check.value("init.uniform", "bound", "rate", bound)
  return function(dims, dtype, seed, id)
    local zero = core.constant(0, "i64")
    return ops.random_uniform(seed, zero, zero, id, dims, dtype) * (2 * bound) - bound
  end
end

--- The same number everywhere; nn.init.zeros and nn.init.ones are two of these.
---@param value number
---@return fun(dims: integer[], dtype: string): sgl.tensor
function initial.constant(value)
  check.value("init.constant", "value", "finite", value)
  ---@param dims integer[]
  ---@param dtype string
  return function(dims, dtype)
    return ops.broadcast(core.constant(value, dtype), dims)
  end
end

core.exact(initial, "nn.init")

--- Zeros, ones.
---@type fun(dims: integer[], dtype: string): sgl.tensor
initial.zeros = initial.constant(0)
initial.ones = initial.constant(1)

return setmetatable(initial, {
  __index = function(_, name)
    core.error(("nn.init has no '%s'; there are constant, normal, ones, uniform, zeros"):format(tostring(name)))
  end,
})
