--- optim.lion: the sign of an interpolated momentum, with decoupled weight decay (Chen et al., arXiv:2302.06675).
---   p <- p * (1 - lr * decay) - lr * sign(m + (g - m)(1 - beta1));  m <- m + (g - m)(1 - beta2)
--- Comes in: options. Goes out: an optimizer; its states are "lion.m/<path>". Its rate is a third to a tenth of
--- AdamW's, its decay as much larger.

local optimizer = require "sgl.optim.optimizer"
local ops = require "sgl.ops"

local function apply(v)
  local beta1, beta2 = v.options.beta1 or 0.9, v.options.beta2 or 0.99
  local m, p = v.state "m", v.p
  local direction = ops.sign(m + (v.g - m) * (1 - beta1))
  if v.decay then p = p * (1 - v.decay * v.rate(v.lr)) end
  return p - direction * v.rate(v.lr), { m = m + (v.g - m) * (1 - beta2) }
end

---@param options { lr: number|function, beta1: number?, beta2: number?, lr_scale: table<string, number>?, weight_decay: number|table<string, number>|nil, clip: number?, decays: (fun(path: string, dims: integer[]): boolean)?, freeze: string|string[]|nil, ema: number?, name: string? } beta1 0.9, beta2 0.99; those of every optimizer: optim/init.lua
---@return sgl.optimizer
return function(options)
  return optimizer.new("lion", options, { beta1 = "share?", beta2 = "share?" }, { { slots = { "m" }, apply = apply } })
end
