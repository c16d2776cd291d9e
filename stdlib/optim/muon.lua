--- optim.muon: momentum made orthogonal, for hidden matrices (Jordan et al., "Muon: an optimizer for hidden layers in
--- neural networks", 2024; kellerjordan.github.io/posts/muon); what is no such matrix learns by AdamW.
---   m <- m + (g - m)(1 - momentum);  x = nesterov and g + (m - g) momentum or m, over its Frobenius norm + eps
---   five times: x <- a x + (b x x' + c (x x')^2) x     (quintic Newton-Schulz; x transposed where it has more rows)
---   p <- p * (1 - lr * decay) - lr * scale * x
--- scale is 0.2 sqrt(max(rows, columns)), which makes the step as long as AdamW's, so that one rate serves all (Liu et
--- al., arXiv:2502.16982), or "original": sqrt(max(1, rows / columns)).
--- Comes in: options; `match`: patterns of what is taken, by default every parameter of two dimensions that is no table
--- of nn.embedding or nn.head. Kernels of convolutions are taken where `match` names them, as matrices of [outputs, the
--- rest]. Goes out: an optimizer; its states are "muon.momentum/<path>", and AdamW's under "muon.m/" and "muon.v/".

local adamw = require "sgl.optim.adamw_rule"
local core = require "sgl.core"
local optimizer = require "sgl.optim.optimizer"
local ops = require "sgl.ops"
local paths = require "sgl.paths"

local a, b, c = 3.4445, -4.7750, 2.0315

-- The nearest matrix with orthogonal rows (or columns), roughly: singular values end between 0.7 and 1.2.
local function orthogonal(x, steps, eps)
  local rows, columns = table.unpack(core.dims(x))
  if rows > columns then x = ops.transpose(x) end
  x = x / ops.maximum(ops.sqrt(ops.sum(x * x)), eps)
  for _ = 1, steps do
    local gram = ops.matmul(x, ops.transpose(x))
    x = x * a + ops.matmul(gram * b + ops.matmul(gram, gram) * c, x)
  end
  return rows > columns and ops.transpose(x) or x
end

-- Rows and columns of a matrix or a kernel.
local function matrix(dims)
  local columns = 1
  for i = 2, #dims do columns = columns * dims[i] end
  return dims[1], columns
end

local function apply(v)
  local options = v.options
  local momentum, rows, columns = options.momentum or 0.95, matrix(core.dims(v.p))
  local m, p = v.state "momentum", v.p
  m = m + (v.g - m) * (1 - momentum)
  local x = options.nesterov == false and m or v.g + (m - v.g) * momentum
  local scale = 0.2 * math.max(rows, columns) ^ 0.5
  if options.scale == "original" then scale = math.max(1, rows / columns) ^ 0.5 end
  if v.decay then p = p * (1 - v.decay * v.rate(v.lr)) end
  local flat = orthogonal(ops.reshape(x, rows, columns), options.newton_steps or 5, options.muon_eps or 1e-7)
  return p - ops.reshape(flat, core.dims(p)) * (v.rate(v.lr) * scale), { momentum = m }
end

---@param options { lr: number|function, momentum: number?, nesterov: boolean?, newton_steps: integer?, muon_eps: number?, scale: "adamw"|"original"|nil, match: string|string[]|nil, beta1: number?, beta2: number?, eps: number?, lr_scale: table<string, number>?, weight_decay: number|table<string, number>|nil, clip: number?, decays: (fun(path: string, dims: integer[]): boolean)?, freeze: string|string[]|nil, ema: number?, name: string? } momentum 0.95, nesterov true, newton_steps 5, muon_eps 1e-7; beta1, beta2, eps: of AdamW; those of every optimizer: optim/init.lua
---@return sgl.optimizer
return function(options)
  local own = {
    momentum = "share?", nesterov = "flag?", newton_steps = "size?", muon_eps = "positive?", scale = "text?",
    match = "any?", beta1 = "share?", beta2 = "share?", eps = "positive?",
  }
  local set = type(options) == "table" and options.match ~= nil and paths.set("muon", "match", options.match) or nil
  local function takes(parameter, matched)
    if set then return matched and (#parameter.dims == 2 or parameter.is_kernel == true) end
    return #parameter.dims == 2 and not parameter.is_table
  end
  local made = optimizer.new("muon", options, own,
    { { slots = { "momentum" }, apply = apply, each = true, takes = takes, match = set }, adamw })
  if options.scale and options.scale ~= "adamw" and options.scale ~= "original" then
    core.error(("muon: scale must be 'adamw' or 'original', not '%s'"):format(options.scale))
  end
  return made
end
