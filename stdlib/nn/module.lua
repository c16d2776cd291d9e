--- nn.module, nn.parameter, nn.buffer, nn.recompute: modules and parameters, what a model is made of.
--- Comes in: children by name and a forward function. Goes out: a callable whose parameters have path names
--- ("blocks.0.attn.wq") once a job names its model. A parameter, called, is its tensor in the graph being traced.
--- Invariant: children are visited in the order in which they were made, so that paths and sections do not depend on
--- the order of a Lua table.

local check = require "sgl.check"
local core = require "sgl.core"
local trace = require "sgl.trace"

local made = 0
local function serial()
  made = made + 1
  return made
end

---- parameters ----

---@class sgl.parameter
---@field dims integer[]
---@field init fun(dims: integer[], dtype: string, seed: sgl.tensor, id: integer): sgl.tensor
---@field path string?
---@field frozen boolean? nothing learns it
---@field role string? of its input: "state" for what --init-from does not bring
---@field adapted (fun(tensor: sgl.tensor): sgl.tensor)? its value with the adapter of sgl.lora
---@field is_kernel boolean? of a convolution, outputs first: muon can take it as a matrix
---@field tp integer? the dimension, from 0, that tensor parallelism splits
---@field ep integer? the dimension of experts, from 0
---@field is_table boolean? a row for each token, which muon leaves to adamw
local Parameter = { __name = "parameter" }
Parameter.__index = Parameter

function Parameter:__call()
  if not self.path then
    local shape = table.concat(self.dims, ", ")
    core.error(("parameter of shape {%s}: it belongs to no module of the job's model"):format(shape))
  end
  local averages, tensor = trace.context().averages, nil
  if averages and averages[self.path] then
    tensor = core.input("state", averages[self.path], trace.dtype(), self.dims)
  else
    tensor = core.input(self.role or "parameter", self.path, trace.dtype(), self.dims)
  end
  if not self.adapted or trace.mode() == "init" then return tensor end
  return trace.adapted(tensor) or self.adapted(tensor)
end

function Parameter:__tostring()
  return ("parameter %s {%s}"):format(self.path or "(unnamed)", table.concat(self.dims, ", "))
end

--- A parameter of the given shape: nn.parameter{ 10, 20, init = nn.init.normal(0.02) }.
---@param options table the extents; init: how it gets its first value; tp: the dimension that tensor parallelism splits, from 0;
--- ep: that of experts
---@return sgl.parameter
local function parameter(options)
  check.value("parameter", "the argument", "table", options)
  local dims, named = {}, {}
  for key, value in pairs(options) do
    if math.type(key) ~= "integer" then named[key] = value end
  end
  check.options("parameter", named, { init = "any?", tp = "count?", ep = "count?" })
  for i, extent in ipairs(options) do
    check.value("parameter", "extent " .. i, "size", extent)
    dims[i] = extent
  end
  if type(options.init) ~= "function" then core.error("parameter: give init, such as nn.init.normal(0.02)") end
  for _, axis in ipairs { "tp", "ep" } do
    if named[axis] and named[axis] >= #dims then
      core.error(("parameter: %s is %d, and there are %d dimensions, counted from 0"):format(axis, named[axis], #dims))
    end
  end
  local made = { dims = dims, init = options.init, tp = named.tp, ep = named.ep, serial = serial() }
  return setmetatable(made, Parameter)
end

-- Only its tensor can be reckoned with.
local function refuse(self, other)
  local one = type(self) == "table" and self or other
  core.error(("%s: call it for its tensor, as in layer.weight()"):format(tostring(one)))
end
for _, operator in ipairs { "add", "sub", "mul", "div", "idiv", "mod", "pow", "unm" } do
  Parameter["__" .. operator] = refuse
end

---- buffers ----

--- What a layer keeps for itself and no optimizer learns, such as running statistics: a parameter by its path and in
--- checkpoints, in the list of buffers() instead of parameters().
---@class sgl.buffer: sgl.parameter
local Buffer = setmetatable({}, { __index = Parameter })
for event, method in pairs(Parameter) do
  if event:find "^__" then Buffer[event] = method end
end
Buffer.__name, Buffer.__index = "buffer", Buffer

function Buffer:__tostring() return (Parameter.__tostring(self):gsub("^parameter", "buffer")) end

--- Its value from the next step on; of a train graph alone. A function makes it of the value that an earlier call in
--- the step has left, so that a layer may be called more than once.
---@param value sgl.tensor|fun(before: sgl.tensor): sgl.tensor
function Buffer:update(value)
  local context = trace.context()
  trace.check_outside(tostring(self) .. ": a new value")
  local now, before = self(), context.buffers[self]
  if type(value) == "function" then
    value = value(before or now)
  elseif before then
    core.error(("%s: the layer is called twice in one step, and what it keeps can follow one call alone"):format(
      tostring(self)))
  end
  if not core.is_tensor(value) or tostring(value) ~= tostring(now) then
    core.error(("%s: its value is %s, the new one is %s"):format(tostring(self), tostring(now), check.show(value)))
  end
  context.buffers[self] = value
end

--- A buffer of the given shape: nn.buffer{ 10, init = nn.init.zeros }.
---@param options table the extents, and init: how it gets its first value
---@return sgl.buffer
local function buffer(options) return setmetatable(parameter(options), Buffer) end

---- modules ----

---@class sgl.module
---@field kind string
---@field path string?
---@field recomputed boolean?
local Module = { __name = "module" }

function Module.__index(self, key)
  local method = rawget(Module, key)
  if method ~= nil then return method end
  return rawget(self, "children")[key]
end

function Module.__call(self, ...)
  if not self.path then core.error(("%s: this module belongs to no model of a job"):format(self.kind)) end
  if self.recomputed and trace.mode() == "train" then core.recompute(self.path) end
  return trace.within(self.path, self.forward, ...)
end

---@param x any
---@return boolean
local function is_module(x) return getmetatable(x) == Module end
---@param x any
---@return boolean
local function is_parameter(x) return getmetatable(x) == Parameter end
---@param x any
---@return boolean
local function is_buffer(x) return getmetatable(x) == Buffer end
-- What has a value and a place in the tree.
local function is_leaf(x) return is_parameter(x) or is_buffer(x) end

-- { key, child } in the order of making; lists of modules count as children "key.0", "key.1", ...
local function ordered(children)
  local list = {}
  local function add(key, child)
    if is_module(child) or is_leaf(child) then
      list[#list + 1] = { key = key, child = child }
    elseif type(child) == "table" and getmetatable(child) == nil then
      for i, inner in ipairs(child) do add(key == "" and tostring(i - 1) or key .. "." .. (i - 1), inner) end
    end
  end
  for key, child in pairs(children) do add(type(key) == "number" and tostring(key - 1) or key, child) end
  table.sort(list, function(a, b)
    if a.child.serial ~= b.child.serial then return a.child.serial < b.child.serial end
    return a.key < b.key
  end)
  return list
end

-- Names the module and all below it, and lists what has a value, in order; a shared one keeps its first name.
local function leaves(top, prefix)
  local found, seen = {}, {}
  local function visit(module, path)
    if seen[module] then return end
    seen[module] = true
    module.path = module.path or (path == "" and module.kind or path)
    for _, entry in ipairs(ordered(module.children)) do
      local name = path == "" and entry.key or path .. "." .. entry.key
      if is_module(entry.child) then
        visit(entry.child, name)
      elseif not seen[entry.child] then
        seen[entry.child] = true
        entry.child.path = entry.child.path or name
        if name == "__metadata__" then
          core.error("parameter '__metadata__': safetensors files keep something else under this name; choose another")
        end
        found[#found + 1] = entry.child
      end
    end
  end
  visit(top, prefix or "")
  return found
end

local function only(list, holds)
  local kept = {}
  for _, one in ipairs(list) do
    if holds(one) then kept[#kept + 1] = one end
  end
  return kept
end

--- Names the module and all below it, and lists what can be learnt, in order; a shared parameter keeps its first name.
---@param prefix string? of the names
---@return sgl.parameter[]
function Module:parameters(prefix) return only(leaves(self, prefix), is_parameter) end

--- The buffers of the module and all below it, named and in order as parameters() does.
---@param prefix string? of the names
---@return sgl.buffer[]
function Module:buffers(prefix) return only(leaves(self, prefix), is_buffer) end

function Module:__tostring()
  local lines = {}
  local function show(module, name, depth)
    lines[#lines + 1] = ("  "):rep(depth) .. (name and name .. ": " or "") .. module.kind
    for _, entry in ipairs(ordered(module.children)) do
      if is_module(entry.child) then
        show(entry.child, entry.key, depth + 1)
      else
        lines[#lines + 1] = ("  "):rep(depth + 1) .. entry.key .. ": {" .. table.concat(entry.child.dims, ", ") .. "}"
      end
    end
  end
  show(self, nil, 0)
  return table.concat(lines, "\n")
end

-- Children are modules, parameters and lists of these; anything else would be left out of the model unseen.
local function check_child(kind, key, child)
  if is_module(child) or is_leaf(child) then return end
  if type(child) ~= "table" or getmetatable(child) ~= nil then
    core.error(("module '%s': child '%s' is %s, it must be a module, a parameter or a list of these"):format(kind, key,
      type(child) == "table" and tostring(child) or "a " .. type(child)))
  end
  local length = #child
  for inner in pairs(child) do
    if math.type(inner) ~= "integer" or inner < 1 or inner > length then
      local what = "module '%s': child '%s' has the key '%s'; it must be a list, nn.module names children"
      core.error(what:format(kind, key, tostring(inner)))
    end
  end
  for i, inner in ipairs(child) do check_child(kind, key .. "." .. (i - 1), inner) end
end

--- A module of its own: nn.module("block", { norm = norm, ffn = ffn }, function(x) return x + ffn(norm(x)) end).
---@param kind string what it is, for printing
---@param children table<string, sgl.module|sgl.parameter|table>
---@param forward function
---@return sgl.module
local function module(kind, children, forward)
  if type(kind) ~= "string" or type(children) ~= "table" or type(forward) ~= "function" then
    core.error("module(kind, children, forward): a string, a table of modules and parameters, a function")
  end
  for key, child in pairs(children) do
    if type(key) ~= "string" and math.type(key) ~= "integer" then
      core.error(("module '%s': a child's key is a %s, it must be a string"):format(kind, type(key)))
    end
    check_child(kind, tostring(key), child)
  end
  return setmetatable({ kind = kind, children = children, forward = forward, serial = serial() }, Module)
end

--- The module, marked: what its backward needs of what it makes is made again there, instead of being kept. Less
--- memory, more time, the same numbers (Chen et al., arXiv:1604.06174).
---@param marked sgl.module
---@return sgl.module the same
local function recompute(marked)
  if not is_module(marked) then core.error("recompute: give a module, not a " .. type(marked)) end
  rawset(marked, "recomputed", true)
  return marked
end

return {
  recompute = recompute,
  module = module, parameter = parameter, buffer = buffer, is_module = is_module, is_parameter = is_parameter,
  is_buffer = is_buffer,
}
