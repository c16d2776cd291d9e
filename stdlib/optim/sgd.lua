--- optim.sgd: stochastic gradient descent with momentum (Sutskever et al., ICML 2013).
---   g <- g + decay * p;  b <- momentum * b + g;  p <- p - lr * (nesterov and g + momentum * b or b)
--- Comes in: options. Goes out: an optimizer; with momentum its states are "sgd.b/<path>".

local core = require "sgl.core"
local optimizer = require "sgl.optim.optimizer"
local ops = require "sgl.ops"

local function rule(v)
  local momentum = v.options.momentum or 0
  local g = v.decay and v.g + v.decay * v.p or v.g
  local lr = ops.cast(v.lr, v.dtype)
  if momentum == 0 then return v.p - g * lr, {} end
  local b = v.state "b" * momentum + g
  return v.p - (v.options.nesterov and g + b * momentum or b) * lr, { b = b }
end

---@param options { lr: number|function, momentum: number?, nesterov: boolean?, weight_decay: number?, clip: number?, decays: (fun(path: string, dims: integer[]): boolean)?, name: string? } momentum: default 0
---@return sgl.optimizer
return function(options)
  local momentum = type(options) == "table" and options.momentum or 0
  local made = optimizer.new("sgd", options, { momentum = "share?", nesterov = "flag?" },
    momentum ~= 0 and { "b" } or {}, rule)
  if options.nesterov and momentum == 0 then core.error("sgd: nesterov needs a momentum above 0") end
  return made
end
