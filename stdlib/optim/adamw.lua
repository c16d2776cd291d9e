--- optim.adamw: Adam with decoupled weight decay (Loshchilov, Hutter, arXiv:1711.05101).
---   p <- p * (1 - lr * decay);  m <- m + (g - m)(1 - beta1);  v <- beta2 v + (1 - beta2) g^2
---   p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
--- Comes in: options. Goes out: an optimizer; its states are "adamw.m/<path>" and "adamw.v/<path>".

local optimizer = require "sgl.optim.optimizer"
local ops = require "sgl.ops"

local function rule(v)
  local beta1, beta2, eps = v.options.beta1 or 0.9, v.options.beta2 or 0.95, v.options.eps or 1e-8
  local function scalar(x) return ops.cast(x, v.dtype) end
  local correction1 = 1 - ops.pow(beta1, v.step)
  local correction2 = ops.sqrt(1 - ops.pow(beta2, v.step))
  local m, s = v.state "m", v.state "v"
  m = m + (v.g - m) * (1 - beta1)
  s = s * beta2 + (v.g * v.g) * (1 - beta2)
  local p = v.p
  if v.decay then p = p * (1 - v.decay * scalar(v.lr)) end
  p = p - m / (ops.sqrt(s) / scalar(correction2) + eps) * scalar(v.lr / correction1)
  return p, { m = m, v = s }
end

---@param options { lr: number|function, beta1: number?, beta2: number?, eps: number?, weight_decay: number?, clip: number?, decays: (fun(path: string, dims: integer[]): boolean)?, name: string? } beta1 0.9, beta2 0.95, eps 1e-8; decay goes to parameters of 2 or more dimensions; clip: global norm
---@return sgl.optimizer
return function(options)
  local own = { beta1 = "share?", beta2 = "share?", eps = "positive?" }
  return optimizer.new("adamw", options, own, { "m", "v" }, rule)
end
