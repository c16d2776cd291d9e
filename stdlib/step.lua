--- What a step of one's own is made of: gradients, updates by hand, states beside the parameters.
--- Comes in: tensors of the trace, parameters, modules. Goes out: gradients; new values of parameters and states, which
--- hold from the next step on.
--- Odd invariant: an update counts in a train graph alone: the same loss function, evaluated, changes nothing.

local check = require "sgl.check"
local core = require "sgl.core"
local base = require "sgl.nn.module"
local trace = require "sgl.trace"

local step = {}

---- gradients ----

-- Adds what `item` is derived by to the list, and returns where it stands there: a number, or a list of these.
local function collect(item, tensors)
  if core.is_tensor(item) or base.is_parameter(item) then
    tensors[#tensors + 1] = core.is_tensor(item) and item or item()
    return #tensors
  end
  local parts = base.is_module(item) and item:parameters() or item
  if type(parts) ~= "table" or (parts == item and getmetatable(item) ~= nil) then
    local what = "grad: %s is a %s; gradients are with respect to tensors, parameters, modules and lists of these"
    core.error(what:format(check.show(item), type(item)))
  end
  local places, names = {}, {}
  for name in pairs(parts) do names[#names + 1] = name end
  table.sort(names, function(a, b)
    if type(a) == "number" and type(b) == "number" then return a < b end
    return tostring(a) < tostring(b)
  end)
  for _, name in ipairs(names) do places[name] = collect(parts[name], tensors) end
  return places
end

local function placed(places, gradients)
  if type(places) == "number" then return gradients[places] end
  local list = {}
  for name, place in pairs(places) do list[name] = placed(place, gradients) end
  return list
end

--- Gradients of a scalar. The result is as `wrt` is: of a tensor or parameter one gradient, of a module a list in the
--- order of its parameters(), of a list or a table by names one of these for each of its members. What does not depend
--- on an argument has zeros as its gradient, as mathematics has it; of a parameter that is said, once for each name.
---@param of sgl.tensor rank 0
---@param wrt sgl.tensor|sgl.parameter|sgl.module|table earlier values of the same trace
---@return sgl.tensor|table
function step.grad(of, wrt)
  if not core.is_tensor(of) then
    local what = "grad: the first argument is a %s; gradients are of a tensor of rank 0%s"
    core.error(what:format(type(of), type(of) == "table" and ", such as one field of the table" or ""))
  end
  local tensors = {}
  local places = collect(wrt, tensors)
  return placed(places, core.grad(of, tensors))
end

---- states ----

---@class sgl.state
---@field name string
---@field dims integer[]
local State = {}
State.__index = State

local states, by_name = {}, {}

--- Its value, as it was when the step began.
function State:__call()
  if trace.mode() == "decode" then
    core.error(("state '%s': generation reads the parameters of a checkpoint and no states"):format(self.name))
  end
  return core.input("state", self.name, self.dtype or trace.dtype(), self.dims)
end

function State:__tostring() return ("state %s {%s}"):format(self.name, table.concat(self.dims, ", ")) end

--- A tensor that is kept from step to step and in checkpoints:
--- sgl.state{ 10, 20, name = "average", init = nn.init.zeros }.
---@param options table the extents (none: a number); name; init: how it gets its first value; dtype: that of parameters
---@return sgl.state
function step.state(options)
  check.value("state", "the argument", "table", options)
  local dims, named = {}, {}
  for key, value in pairs(options) do
    if math.type(key) ~= "integer" then named[key] = value end
  end
  check.options("state", named, { name = "text", init = "call", dtype = "text?" })
  for i, extent in ipairs(options) do
    check.value("state", "extent " .. i, "size", extent)
    dims[i] = extent
  end
  if named.name == "" or named.name == "__metadata__" then
    core.error(("state: '%s' cannot be the name of what a checkpoint keeps"):format(named.name))
  end
  if by_name[named.name] then core.error(("state: there is one with the name '%s' already"):format(named.name)) end
  local self = setmetatable({ name = named.name, dims = dims, init = named.init, dtype = named.dtype }, State)
  states[#states + 1], by_name[named.name] = self, self
  return self
end

--- All that the script has made.
---@return sgl.state[]
function step.states() return states end

---- updates ----

--- The value of a parameter or state from the next step on.
---@param what sgl.parameter|sgl.state
---@param value sgl.tensor|number
function step.update(what, value)
  local is_state = getmetatable(what) == State
  if not is_state and not base.is_parameter(what) then
    core.error(("update: %s is a %s; it must be a parameter, such as layer.weight, or an sgl.state"):format(
      check.show(what), type(what)))
  end
  local old, name = what(), is_state and what.name or what.path
  if type(value) == "number" then
    value = core.emit("broadcast", { core.constant(value, core.dtype(old)) }, { dims = core.dims(old) })
  end
  if not core.is_tensor(value) or tostring(value) ~= tostring(old) then
    core.error(("update: '%s' is %s, the new value is %s"):format(name, tostring(old), tostring(value)))
  end
  trace.update(name, value)
end

return step
