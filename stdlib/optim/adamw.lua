--- optim.adamw: Adam with decoupled weight decay (Loshchilov, Hutter, arXiv:1711.05101); adamw_rule.lua is the formula.
--- Comes in: options. Goes out: an optimizer; its states are "adamw.m/<path>" and "adamw.v/<path>".

local optimizer = require "sgl.optim.optimizer"
local rule = require "sgl.optim.adamw_rule"

---@param options { lr: number|function, beta1: number?, beta2: number?, eps: number?, lr_scale: table<string, number>?, weight_decay: number|table<string, number>|nil, clip: number?, decays: (fun(path: string, dims: integer[]): boolean)?, freeze: string|string[]|nil, ema: number?, name: string? } beta1 0.9, beta2 0.95, eps 1e-8; those of every optimizer: optim/init.lua
---@return sgl.optimizer
return function(options)
  local own = { beta1 = "share?", beta2 = "share?", eps = "positive?" }
  return optimizer.new("adamw", options, own, { rule })
end
