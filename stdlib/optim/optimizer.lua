--- What optimizers share: gradients, the global norm, clipping, decay and rates by pattern, frozen parameters,
--- averages, states, updates.
--- Comes in: a name, the user's options and rules. A rule takes all parameters that no rule before it wants, as one
--- long 1-D value, or (`each`) every parameter for itself; it sees p, g, lr (f64, as the schedule gives it), rate(x) (x
--- times the share of the parameter, in p's dtype), the decay of each element, state(slot), and returns the new p and
--- the new slots by name.
--- Goes out: an object with :minimize(loss, model).

local core = require "sgl.core"
local check = require "sgl.check"
local base = require "sgl.nn.module"
local ops = require "sgl.ops"
local paths = require "sgl.paths"
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
local known = {
  lr = "any", lr_scale = "any?", weight_decay = "any?", clip = "positive?", decays = "call?", freeze = "any?",
  ema = "share?", name = "text?",
}

---@class sgl.optimizer.rule
---@field slots string[] states of each parameter
---@field apply fun(v: table): sgl.tensor, table<string, sgl.tensor>
---@field each boolean? every parameter for itself, in its shape
---@field takes (fun(parameter: sgl.parameter, matched: boolean?): boolean)? default: all
---@field match table<string, boolean>? patterns of what is `matched`
---@field dims (fun(slot: string, dims: integer[]): integer[]|nil)? of a slot, nil: none; default: as the parameter

---@class sgl.optimizer
---@field name string prefix of its states
---@param kind string
---@param options table those of every optimizer and the rules' own
---@param own table<string, string> the rules' own options and their kinds
---@param rules sgl.optimizer.rule[]
---@return sgl.optimizer
local function new(kind, options, own, rules)
  local fields = {}
  for name, value in pairs(known) do fields[name] = value end
  for name, value in pairs(own) do fields[name] = value end
  if type(options) == "table" and options[1] ~= nil then
    core.error(("%s: options are given by name, as in optim.%s { lr = 1e-3 }; what learns is the job's model, or what "
      .. "minimize is handed"):format(kind, kind))
  end
  check.options(kind, options, fields)
  if trace.is_tracing() then
    core.error(kind .. ": an optimizer keeps states from step to step: make it once, outside of the step")
  end
  if type(options.weight_decay) == "table" then
    paths.check(kind, "weight_decay", options.weight_decay, "rate")
    if options.decays then core.error(kind .. ": weight_decay by patterns says what decays; leave decays out") end
  elseif options.weight_decay ~= nil then
    check.value(kind, "weight_decay", "rate", options.weight_decay)
  end
  if options.lr_scale ~= nil then paths.check(kind, "lr_scale", options.lr_scale, "rate") end
  local self = { kind = kind, options = options, rules = rules, here = core.here() }
  self.name = unique(options.name or kind)
  self.frozen = options.freeze ~= nil and paths.set(kind, "freeze", options.freeze) or {}
  self.lr = schedule.of(kind, options.lr)
  return setmetatable(self, Optimizer)
end

function Optimizer:__tostring() return self.kind end

---- what each parameter is due ----

-- Those that learn: neither frozen by the model (nn.freeze) nor by the option.
local function learnable(self, parameters)
  local is_frozen, kept = paths.read(self.kind, "freeze", self.frozen, parameters, self.here), {}
  for _, parameter in ipairs(parameters) do
    if not parameter.frozen and not is_frozen(parameter) then kept[#kept + 1] = parameter end
  end
  return kept
end

-- The decay of a parameter, as a function: by pattern; or one rate for matrices, unless the user's decays(path, dims)
-- says otherwise.
local function decay_of(self, parameters)
  local rate = self.options.weight_decay or 0
  if type(rate) == "table" then
    local found = paths.read(self.kind, "weight_decay", rate, parameters, self.here)
    return function(parameter) return found(parameter) or 0 end
  end
  return function(parameter)
    local decays = #parameter.dims >= 2
    if self.options.decays then decays = self.options.decays(parameter.path, parameter.dims) end
    return decays and rate or 0
  end
end

local function scale_of(self, parameters)
  local found = paths.read(self.kind, "lr_scale", self.options.lr_scale or {}, parameters, self.here)
  return function(parameter) return found(parameter) or 1 end
end

local function count(dims)
  local product = 1
  for _, extent in ipairs(dims) do product = product * extent end
  return product
end

-- What `of` says of each parameter, for a chunk: a number where it is one parameter, else 1-D, each element its own;
-- nil where all are `none`.
local function spread(chunk, of, none, dtype)
  local counts, values, differs = {}, {}, false
  for i, parameter in ipairs(chunk.parameters) do
    counts[i], values[i] = count(parameter.dims), of(parameter)
    differs = differs or values[i] ~= none
  end
  if not differs then return nil end
  return chunk.rule.each and values[1] or ops.segments(counts, values, dtype)
end

-- What is updated at once: { rule, parameters, at (their places in the list) }.
local function chunks(self, parameters)
  local list, whole, matched = {}, {}, {}
  for _, rule in ipairs(self.rules) do
    matched[rule] = paths.read(self.kind, "match", rule.match or {}, parameters, self.here)
  end
  for at, parameter in ipairs(parameters) do
    for _, rule in ipairs(self.rules) do
      if not rule.takes or rule.takes(parameter, matched[rule](parameter)) then
        local chunk = whole[rule]
        if not chunk then
          chunk = { rule = rule, parameters = {}, at = {} }
          list[#list + 1] = chunk
          if not rule.each then whole[rule] = chunk end
        end
        chunk.parameters[#chunk.parameters + 1], chunk.at[#chunk.at + 1] = parameter, at
        break
      end
    end
  end
  return list
end

---- states ----

local average = "ema" -- the slot of averages

local function state_path(self, slot, parameter) return ("%s.%s/%s"):format(self.name, slot, parameter.path) end

local function slots_of(self, rule)
  if not self.options.ema then return rule.slots end
  local slots = table.move(rule.slots, 1, #rule.slots, 1, {})
  slots[#slots + 1] = average
  return slots
end

local function slot_dims(rule, slot, parameter)
  if slot == average or not rule.dims then return parameter.dims end
  return rule.dims(slot, parameter.dims)
end

--- Every state with its shape, for the init graph: calls each(path, dims).
---@param parameters sgl.parameter[]
---@param each fun(path: string, dims: integer[])
function Optimizer:states(parameters, each)
  for _, chunk in ipairs(chunks(self, learnable(self, parameters))) do
    for _, slot in ipairs(slots_of(self, chunk.rule)) do
      for _, parameter in ipairs(chunk.parameters) do
        local dims = slot_dims(chunk.rule, slot, parameter)
        if dims then each(state_path(self, slot, parameter), dims) end
      end
    end
  end
end

--- The states that hold averages of the parameters, by the paths of these; nil without the option ema.
---@param parameters sgl.parameter[]
---@return table<string, string>?
function Optimizer:averages(parameters)
  if not self.options.ema then return nil end
  local names = {}
  for _, parameter in ipairs(learnable(self, parameters)) do
    names[parameter.path] = state_path(self, average, parameter)
  end
  return names
end

-- The parts of a chunk as one value: packed, or the one that it is.
local function gathered(chunk, parts)
  if chunk.rule.each then return parts[1] end
  return ops.pack(parts)
end

-- The current value of a slot.
local function read_state(self, chunk, slot, dtype)
  local parts = {}
  for i, parameter in ipairs(chunk.parameters) do
    local dims = slot_dims(chunk.rule, slot, parameter)
    parts[i] = core.input("state", state_path(self, slot, parameter), dtype, dims)
  end
  return gathered(chunk, parts)
end

-- Hands the value of a chunk out to its parameters: calls each(parameter, part).
local function distribute(chunk, value, each)
  if chunk.rule.each then return each(chunk.parameters[1], value) end
  local shapes = {}
  for i, parameter in ipairs(chunk.parameters) do shapes[i] = parameter.dims end
  for i, part in ipairs { ops.unpack(value, shapes) } do each(chunk.parameters[i], part) end
end

---- a step ----

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

-- A loss, or a term of it that a layer has declared, must depend on something that learns.
local function check_reached(self, loss, tensors, context)
  if not core.reaches(loss, tensors) then
    core.error(("%s: the loss depends on none of the %d parameters that learn: nothing on the way from them lets a "
      .. "gradient pass"):format(self.kind, #tensors), context.here)
  end
  for _, term in ipairs(context.terms) do
    if not core.reaches(term.value, tensors) then
      core.error(("%s: the auxiliary loss of '%s' depends on none of the parameters that learn"):format(self.kind,
        term.path), context.here)
    end
  end
end

-- Sets p and g of each chunk, clipped, and returns the global norm.
local function gather_gradients(self, list, loss, parameters, context)
  local tensors = {}
  for i, parameter in ipairs(parameters) do tensors[i] = parameter() end
  check_reached(self, loss, tensors, context)
  local gradients = { core.emit("grad", { loss, table.unpack(tensors) }, { outer = true }) }
  local squares
  for _, chunk in ipairs(list) do
    local p, g = {}, {}
    for i, at in ipairs(chunk.at) do p[i], g[i] = tensors[at], gradients[at] end
    chunk.p, chunk.g = gathered(chunk, p), gathered(chunk, g)
    local square = ops.sum(chunk.g * chunk.g)
    squares = squares and squares + square or square
  end
  local norm = ops.sqrt(squares)
  if self.options.clip then
    local factor = ops.minimum(self.options.clip / (norm + 1e-6), 1)
    for _, chunk in ipairs(list) do chunk.g = chunk.g * factor end
  end
  return norm
end

local function rate_of(self, context)
  local lr = self.lr(ops.cast(context.step, "f64"), context.steps)
  if type(lr) == "number" then lr = core.constant(lr, "f64") end
  if not core.is_tensor(lr) or core.rank(lr) ~= 0 then
    local what = "%s: the schedule must give a number or a tensor of rank 0, it gave %s"
    core.error(what:format(self.kind, tostring(lr)), self.here)
  end
  return lr
end

-- The average from the next step on: decay * average + (1 - decay) * p; after the first step it is p itself.
local function averaged(self, chunk, step, p, dtype)
  local old = read_state(self, chunk, average, dtype)
  local share = ops.select(ops.equal(step, 1), core.constant(1, "f64"), 1 - self.options.ema)
  return old + (p - old) * ops.cast(share, dtype)
end

-- Emits the new values of a chunk. due: the decay and the share of the rate, functions of a parameter; lr, step.
local function update(self, chunk, due)
  local dtype, rule = core.dtype(chunk.p), chunk.rule
  local scale = spread(chunk, due.scale, 1, dtype)
  local function rate(x)
    x = ops.cast(x, dtype)
    return scale and x * scale or x
  end
  local fresh, slots = rule.apply { p = chunk.p, g = chunk.g, lr = due.lr, step = due.step, dtype = dtype, rate = rate,
    decay = spread(chunk, due.decay, 0, dtype), options = self.options,
    state = function(slot) return read_state(self, chunk, slot, dtype) end }
  if self.options.ema then slots[average] = averaged(self, chunk, due.step, fresh, dtype) end
  distribute(chunk, fresh, function(parameter, part) trace.update(parameter.path, part) end)
  for _, slot in ipairs(slots_of(self, rule)) do
    if slots[slot] then
      distribute(chunk, slots[slot], function(parameter, part)
        trace.update(state_path(self, slot, parameter), part)
      end)
    end
  end
end

--- One step: emits gradients and updates into the train graph. Returns { lr, grad_norm }, rank 0 each. A loss that
--- depends on no parameter is an error, and so is a term that a layer has declared (nn.auxiliary_loss). Of a sum that
--- the script has written itself the terms are its own: a constant among them is mathematics.
---@param loss sgl.tensor rank 0
---@param what sgl.module|table a module, or a list of modules and parameters
---@return { lr: sgl.tensor, grad_norm: sgl.tensor }
function Optimizer:minimize(loss, what)
  if not core.is_tensor(loss) or core.rank(loss) ~= 0 then
    core.error(("minimize(loss, parameters): the loss must be a tensor of rank 0, not %s"):format(tostring(loss)))
  end
  trace.check_settled()
  local listed = list_parameters(what)
  local parameters = learnable(self, listed)
  if #listed == 0 then core.error(self.kind .. ": there is no parameter to learn") end
  if #parameters == 0 then core.error(self.kind .. ": every parameter is frozen, there is none to learn", self.here) end
  local context = trace.context()
  context.learnt[#context.learnt + 1] = { optimizer = self, parameters = listed }
  local list = chunks(self, parameters)
  local norm = gather_gradients(self, list, loss, parameters, context)
  local lr = rate_of(self, context)
  -- Where steps can be skipped (a plan of fp16), the rules count those that were not.
  local number = core.emit("update_number", { context.step })
  local due = { decay = decay_of(self, parameters), scale = scale_of(self, parameters), lr = lr,
    step = ops.cast(number, "f64") }
  for _, chunk in ipairs(list) do update(self, chunk, due) end
  return { lr = lr, grad_norm = norm }
end

return { new = new, Optimizer = Optimizer }
