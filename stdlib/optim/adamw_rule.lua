--- The rule of AdamW (Loshchilov, Hutter, arXiv:1711.05101), for optim.adamw and for those that leave parameters to it.
---   p <- p * (1 - lr * decay);  m <- m + (g - m)(1 - beta1);  v <- beta2 v + (1 - beta2) g^2
---   p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
--- Comes in: what optimizer.lua gives a rule, with the options beta1, beta2, eps. Goes out: the new p, m and v.

local ops = require "sgl.ops"

---@param v table
local function apply(v)
  local beta1, beta2, eps = v.options.beta1 or 0.9, v.options.beta2 or 0.95, v.options.eps or 1e-8
  local function scalar(x) return ops.cast(x, v.dtype) end
  local correction1 = 1 - ops.pow(beta1, v.step)
  local correction2 = ops.sqrt(1 - ops.pow(beta2, v.step))
  local m, s = v.state "m", v.state "v"
  m = m + (v.g - m) * (1 - beta1)
  s = s * beta2 + (v.g * v.g) * (1 - beta2)
  local p = v.p
  if v.decay then p = p * (1 - v.decay * v.rate(v.lr)) end
  p = p - m / (ops.sqrt(s) / scalar(correction2) + eps) * v.rate(v.lr / correction1)
  return p, { m = m, v = s }
end

return { slots = { "m", "v" }, apply = apply }
