--- nn.rms_norm: x / sqrt(mean(x^2) + eps) * gain over the last dimension (Zhang, Sennrich, arXiv:1910.07467).
--- Comes in: x [..., dim]. Goes out: the same shape. Weight (the gain) [dim].

local check = require "sgl.check"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"

---@param dim integer
---@param options { eps: number? }? default 1e-5
---@return sgl.module
return function(dim, options)
  check.value("rms_norm", "dim", "size", dim)
  local eps = check.options("rms_norm", options, { eps = "positive?" }).eps or 1e-5
  local weight = base.parameter { dim, init = initial.ones }
  return base.module(("rms_norm(%d)"):format(dim), { weight = weight }, function(x)
    return ops.rms_norm(x, weight(), eps)
  end)
end
