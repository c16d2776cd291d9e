--- nn.layer_norm: (x - mean) / sqrt(variance + eps) * gain + bias over the last dimension (Ba et al.,
--- arXiv:1607.06450).
--- Comes in: x [..., dim]. Goes out: the same shape. Weight (the gain) and bias [dim].

local check = require "sgl.check"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"

---@param dim integer
---@param options { eps: number? }? default 1e-5
---@return sgl.module
return function(dim, options)
  check.value("layer_norm", "dim", "size", dim)
  local eps = check.options("layer_norm", options, { eps = "positive?" }).eps or 1e-5
  local weight = base.parameter { dim, init = initial.ones }
  local bias = base.parameter { dim, init = initial.zeros }
  return base.module(("layer_norm(%d)"):format(dim), { weight = weight, bias = bias }, function(x)
    return ops.layer_norm(x, weight(), bias(), eps)
  end)
end
