--- What optimizers share: gradients into one long value, the global norm, clipping, decay, states, updates.
--- Comes in: a name, the user's options and a rule. The rule sees 1-D values of all parameters one after another: p,
--- g, the
--- rate lr (of p's dtype), the decay of each element, state(slot), and returns the new p and the new slots by name.
--- Goes out: an object with :minimize(loss, model).

local core = require "sgl.core"
local check = require "sgl.check"
local base = require "sgl.nn.module"
local ops = require "sgl.ops"
local schedule = require "sgl.optim.schedule"
local trace = require "sgl.trace"

local Optimizer = {}
Optimizer.__index = Optimizer

local names = {}

local function unique(name)
  local count = (names[name] or 0) + 1
  names[name] = count
  return count == 1 and name or name .. count
end

-- Of every optimizer, with the kinds of `check`.
local known = { lr = "any", weight_decay = "rate?", clip = "positive?", decays = "call?", name = "text?" }

---@class sgl.optimizer
---@field name string prefix of its states
---@param kind string
---@param options table lr, weight_decay, clip, decays, name and the rule's own
---@param own table<string, string> the rule's own options and their kinds
---@param slots string[] states kept per parameter
---@param rule fun(v: table): sgl.tensor, table<string, sgl.tensor>
---@return sgl.optimizer
local function new(kind, options, own, slots, rule)
  local fields = {}
  for name, value in pairs(known) do fields[name] = value end
  for name, value in pairs(own) do fields[name] = value end
  check.options(kind, options, fields)
  local self = { kind = kind, options = options, slots = slots, rule = rule, name = unique(options.name or kind),
    here = core.here() }
  self.lr = schedule.of(kind, options.lr)
  return setmetatable(self, Optimizer)
end

function Optimizer:__tostring() return self.kind end

-- Weight decay goes to matrices unless the user's decays(path, dims) says otherwise.
local function decays(self, parameter)
  if self.options.decays then return self.options.decays(parameter.path, parameter.dims) end
  return #parameter.dims >= 2
end

local function count(dims)
  local product = 1
  for _, extent in ipairs(dims) do product = product * extent end
  return product
end

-- 1-D, the decay of each element, or nil when nothing decays.
local function decay_of(self, parameters, dtype)
  local rate = self.options.weight_decay or 0
  if rate == 0 then return nil end
  local counts, values = {}, {}
  for i, parameter in ipairs(parameters) do
    counts[i], values[i] = count(parameter.dims), decays(self, parameter) and rate or 0
  end
  return ops.segments(counts, values, dtype)
end

local function state_path(self, slot, parameter) return ("%s.%s/%s"):format(self.name, slot, parameter.path) end

--- Every state with its shape, for the init graph: calls each(path, dims).
---@param parameters sgl.parameter[]
---@param each fun(path: string, dims: integer[])
function Optimizer:states(parameters, each)
  for _, slot in ipairs(self.slots) do
    for _, parameter in ipairs(parameters) do each(state_path(self, slot, parameter), parameter.dims) end
  end
end

local function list_parameters(what)
  if base.is_module(what) then return what:parameters() end
  local list = {}
  if base.is_parameter(what) then return { what } end
  if type(what) ~= "table" or getmetatable(what) ~= nil then
    core.error("minimize(loss, parameters): give a module, or a list of modules and parameters")
  end
  for _, item in ipairs(what) do
    if base.is_parameter(item) then
      list[#list + 1] = item
    elseif base.is_module(item) then
      for _, parameter in ipairs(item:parameters()) do list[#list + 1] = parameter end
    else
      core.error("minimize(loss, parameters): give a module, or a list of modules and parameters")
    end
  end
  return list
end

--- One step: emits gradients and updates into the train graph. Returns { lr, grad_norm }, rank 0 each.
---@param loss sgl.tensor rank 0
---@param what sgl.module|table a module, or a list of modules and parameters
---@return { lr: sgl.tensor, grad_norm: sgl.tensor }
function Optimizer:minimize(loss, what)
  if not core.is_tensor(loss) or core.rank(loss) ~= 0 then
    core.error(("minimize(loss, parameters): the loss must be a tensor of rank 0, not %s"):format(tostring(loss)))
  end
  trace.check_settled()
  local parameters = list_parameters(what)
  if #parameters == 0 then core.error(self.kind .. ": there is no parameter to learn") end
  local context = trace.context()
  context.learnt[#context.learnt + 1] = { optimizer = self, parameters = parameters }
  local tensors, shapes = {}, {}
  for i, parameter in ipairs(parameters) do tensors[i], shapes[i] = parameter(), parameter.dims end
  local p, g = ops.pack(tensors), ops.pack(core.grad(loss, tensors))
  local dtype = core.dtype(p)
  local norm = ops.sqrt(ops.sum(g * g))
  if self.options.clip then g = g * ops.minimum(self.options.clip / (norm + 1e-6), 1) end
  local step = ops.cast(context.step, "f64")
  local lr = self.lr(step, context.steps)
  if type(lr) == "number" then lr = core.constant(lr, "f64") end
  if not core.is_tensor(lr) or core.rank(lr) ~= 0 then
    local what = "%s: the schedule must give a number or a tensor of rank 0, it gave %s"
    core.error(what:format(self.kind, tostring(lr)), self.here)
  end
  local function state(slot)
    local parts = {}
    for i, parameter in ipairs(parameters) do
      parts[i] = core.input("state", state_path(self, slot, parameter), dtype, parameter.dims)
    end
    return ops.pack(parts)
  end
  local fresh, slots = self.rule { p = p, g = g, lr = lr, step = step, state = state, dtype = dtype,
    decay = decay_of(self, parameters, dtype), options = self.options }
  for i, value in ipairs { ops.unpack(fresh, shapes) } do trace.update(parameters[i].path, value) end
  for _, slot in ipairs(self.slots) do
    local value = slots[slot]
    for i, part in ipairs { ops.unpack(value, shapes) } do trace.update(state_path(self, slot, parameters[i]), part) end
  end
  return { lr = lr, grad_norm = norm }
end

return { new = new, Optimizer = Optimizer }
