--- nn.mlp: down(activation(up(x))), with biases: the feed-forward block of GPT-2.
--- Comes in: x [..., dim]. Goes out: the same shape. Children up (linear dim to hidden) and down (linear hidden to
--- dim).

local activation_of = require "sgl.nn.activation"
local check = require "sgl.check"
local base = require "sgl.nn.module"
local linear = require "sgl.nn.linear"

---@param dim integer
---@param hidden integer
---@param options { activation: string?, bias: boolean?, init: function?, init_out: function? }? default gelu, with bias
---@return sgl.module
return function(dim, hidden, options)
  check.value("mlp", "dim", "size", dim)
  check.value("mlp", "hidden", "size", hidden)
  options = check.options("mlp", options, { activation = "text?", bias = "flag?", init = "call?", init_out = "call?" })
  local name = options.activation or "gelu"
  local activation = activation_of("mlp", name)
  local bias = options.bias ~= false
  local up = linear(dim, hidden, { bias = bias, init = options.init, tp = 0 })
  local down = linear(hidden, dim, { bias = bias, init = options.init_out or options.init, tp = 1 })
  return base.module(("mlp(%d, %d, %s)"):format(dim, hidden, name), { up = up, down = down }, function(x)
    return down(activation(up(x)))
  end)
end
