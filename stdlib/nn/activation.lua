--- Activations by name, for layers that take one: "relu", "gelu", "silu", ...
--- Comes in: the name of the layer and of an activation. Goes out: a function of a tensor, or an error with the nearest
--- name. What each computes stands in docs/ops.md and in functions.lua.

local core = require "sgl.core"
local names_of = require "sgl.names"
local ops = require "sgl.ops"

local activations = {
  gelu = function(x) return ops.gelu(x) end,
  gelu_exact = function(x) return ops.gelu(x, true) end,
  silu = ops.silu,
  relu = ops.relu,
  leaky_relu = function(x) return ops.leaky_relu(x) end,
  elu = function(x) return ops.elu(x) end,
  mish = ops.mish,
  tanh = ops.tanh,
  sigmoid = ops.sigmoid,
  identity = function(x) return x end,
}

---@param where string the layer
---@param name string
---@return fun(x: sgl.tensor): sgl.tensor
return function(where, name)
  local activation = activations[name]
  if activation then return activation end
  local names = names_of.sorted(activations)
  core.error(("%s: there is no activation '%s'%s"):format(where, tostring(name), names_of.hint(name, names)))
end
