--- optim.sgd: stochastic gradient descent with momentum (Sutskever et al., ICML 2013).
---   g <- g + decay * p;  b <- momentum * b + g;  p <- p - lr * (nesterov and g + momentum * b or b)
--- Comes in: options. Goes out: an optimizer; with momentum its states are "sgd.b/<path>".

local core = require "sgl.core"
local optimizer = require "sgl.optim.optimizer"

local function apply(v)
  local momentum = v.options.momentum or 0
  local g = v.decay and v.g + v.decay * v.p or v.g
  local lr = v.rate(v.lr)
  if momentum == 0 then return v.p - g * lr, {} end
  local b = v.state "b" * momentum + g
  return v.p - (v.options.nesterov and g + b * momentum or b) * lr, { b = b }
end

---@param options { lr: number|function, momentum: number?, nesterov: boolean?, lr_scale: table<string, number>?, weight_decay: number|table<string, number>|nil, clip: number?, decays: (fun(path: string, dims: integer[]): boolean)?, freeze: string|string[]|nil, ema: number?, name: string? } momentum: default 0; those of every optimizer: optim/init.lua
---@return sgl.optimizer
return function(options)
  local momentum = type(options) == "table" and options.momentum or 0
  local made = optimizer.new("sgd", options, { momentum = "share?", nesterov = "flag?" },
    { { slots = momentum ~= 0 and { "b" } or {}, apply = apply } })
  if options.nesterov and momentum == 0 then core.error("sgd: nesterov needs a momentum above 0") end
  return made
end
