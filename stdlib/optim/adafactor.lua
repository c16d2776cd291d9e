--- optim.adafactor: second moments of matrices as a column and a row (Shazeer, Stern, arXiv:1804.04235), as
--- torch.optim.Adafactor has it: no first moment, the update clipped by its own root mean square.
---   r <- r + (mean of g^2 over columns - r) t^-decay;  c <- c + (mean of g^2 over rows - c) t^-decay
---   v = r c / max(mean of r, eps);  u = g / sqrt(max(v, eps^2));  u <- u / max(1, rms(u) / threshold)
---   p <- p * (1 - lr * weight_decay) - max(eps_scale, rms(p)) min(lr, 1 / sqrt(t)) u
--- Comes in: options. Goes out: an optimizer; its states are "adafactor.r/<path>" [..., rows, 1] and
--- "adafactor.c/<path>" [..., 1, columns] of parameters of 2 or more dimensions, "adafactor.v/<path>" of the others.

local core = require "sgl.core"
local optimizer = require "sgl.optim.optimizer"
local ops = require "sgl.ops"

local machine = { f64 = 2 ^ -52, f32 = 2 ^ -23 }

local function root_mean_square(x)
  local elements = 1
  for _, extent in ipairs(core.dims(x)) do elements = elements * extent end
  return ops.sqrt(ops.sum(x * x) / elements)
end

local function apply(v)
  local options, squares, slots = v.options, v.g * v.g, {}
  local eps = options.eps or machine[v.dtype]
  local share = ops.cast(ops.pow(v.step, -(options.beta2_decay or 0.8)), v.dtype)
  local function towards(slot, value)
    local old = v.state(slot)
    slots[slot] = old + (value - old) * share
    return slots[slot]
  end
  local estimate
  if core.rank(v.p) >= 2 then
    local r, c = towards("r", ops.mean(squares, -1, true)), towards("c", ops.mean(squares, -2, true))
    estimate = r / ops.maximum(ops.mean(r, -2, true), eps) * c
  else
    estimate = towards("v", squares)
  end
  local update = v.g * ops.rsqrt(ops.maximum(estimate, eps * eps))
  update = update / ops.maximum(root_mean_square(update) / (options.threshold or 1), 1)
  local p = v.p
  local size = ops.maximum(root_mean_square(p), options.eps_scale or 1e-3)
  if v.decay then p = p * (1 - v.decay * v.rate(v.lr)) end
  return p - update * (size * v.rate(ops.minimum(v.lr, ops.rsqrt(v.step)))), slots
end

-- A row and a column of what has two dimensions, as much as the parameter of what has not.
local function slot_dims(slot, dims)
  if #dims < 2 then return slot == "v" and dims or nil end
  if slot == "v" then return nil end
  local short = table.move(dims, 1, #dims, 1, {})
  short[slot == "r" and #dims or #dims - 1] = 1
  return short
end

---@param options { lr: number|function, beta2_decay: number?, eps: number?, eps_scale: number?, threshold: number?, lr_scale: table<string, number>?, weight_decay: number|table<string, number>|nil, clip: number?, decays: (fun(path: string, dims: integer[]): boolean)?, freeze: string|string[]|nil, ema: number?, name: string? } beta2_decay 0.8, eps: of the dtype, eps_scale 1e-3, threshold 1; those of every optimizer: optim/init.lua
---@return sgl.optimizer
return function(options)
  local own = { beta2_decay = "positive?", eps = "positive?", eps_scale = "positive?", threshold = "positive?" }
  return optimizer.new("adafactor", options, own,
    { { slots = { "r", "c", "v" }, apply = apply, each = true, dims = slot_dims } })
end
