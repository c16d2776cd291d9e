--- nn.swiglu: down(silu(gate(x)) * up(x)) (Shazeer, arXiv:2002.05202).
--- Comes in: x [..., dim]. Goes out: the same shape. Weights gate and up [hidden, dim], down [dim, hidden].

local check = require "sgl.check"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"

---@param dim integer
---@param hidden integer
---@param options { init: function?, init_out: function? }?
---@return sgl.module
return function(dim, hidden, options)
  check.value("swiglu", "dim", "size", dim)
  check.value("swiglu", "hidden", "size", hidden)
  options = check.options("swiglu", options, { init = "call?", init_out = "call?" })
  local init = options.init or initial.normal(dim ^ -0.5)
  local gate = base.parameter { hidden, dim, init = init, tp = 0 }
  local up = base.parameter { hidden, dim, init = init, tp = 0 }
  local init_out = options.init_out or options.init or initial.normal(hidden ^ -0.5)
  local down = base.parameter { dim, hidden, init = init_out, tp = 1 }
  return base.module(("swiglu(%d, %d)"):format(dim, hidden), { gate = gate, up = up, down = down }, function(x)
    return ops.linear(ops.silu(ops.linear(x, gate())) * ops.linear(x, up()), down())
  end)
end
