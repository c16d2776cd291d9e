--- nn.linear: y = x W^T + b.
--- Comes in: x [..., input]. Goes out: [..., output]. Weight [output, input], bias [output].

local core = require "sgl.core"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"

---@param input integer
---@param output integer
---@param options { bias: boolean?, init: function? }? bias: default false; init: normal with std 1 / sqrt(input)
---@return sgl.module
return function(input, output, options)
  options = options or {}
  if math.type(input) ~= "integer" or math.type(output) ~= "integer" or input < 1 or output < 1 then
    local given = ("%s and %s"):format(tostring(input), tostring(output))
    core.error("linear(input, output): both must be integers of at least 1, not " .. given)
  end
  local weight = base.parameter { output, input, init = options.init or initial.normal(input ^ -0.5) }
  local bias = options.bias and base.parameter { output, init = initial.zeros } or nil
  return base.module(("linear(%d, %d)"):format(input, output), { weight = weight, bias = bias }, function(x)
    return ops.linear(x, weight(), bias and bias())
  end)
end
