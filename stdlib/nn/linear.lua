--- nn.linear: y = x W^T + b.
--- Comes in: x [..., input]. Goes out: [..., output]. Weight [output, input], bias [output].

local check = require "sgl.check"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"

---@param input integer
---@param output integer
---@param options { bias: boolean?, init: function?, tp: integer? }? bias: default false; init: normal with std 1 / sqrt(input); tp: the dimension of the weight that tensor parallelism splits
---@return sgl.module
return function(input, output, options)
  check.value("linear", "input", "size", input)
  check.value("linear", "output", "size", output)
  options = check.options("linear", options, { bias = "flag?", init = "call?", tp = "count?" })
  local weight = base.parameter { output, input, init = options.init or initial.normal(input ^ -0.5), tp = options.tp }
  local split = options.tp == 0 and 0 or nil -- outputs
  local bias = options.bias and base.parameter { output, init = initial.zeros, tp = split } or nil
  return base.module(("linear(%d, %d)"):format(input, output), { weight = weight, bias = bias }, function(x)
    return ops.linear(x, weight(), bias and bias())
  end)
end
