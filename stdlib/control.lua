--- control: loops and branches that run in the graph: sgl.scan, sgl.while_loop, sgl.cond.
--- Comes in: functions of the script and what they start from, tensors in tables of any nesting. Goes out: tensors in
--- tables of the same shape. Each function is traced once; it may use any tensor made before it, and has a gradient in
--- all that it uses.
--- Odd invariant: what must be the same in each turn or branch (keys, shapes, dtypes) is told by names as a script
--- would write them: carry.h, carry[2].

local core = require "sgl.core"
local check = require "sgl.check"
local trace = require "sgl.trace"
local emit = core.emit

local control = {}

local function type_text(x) return tostring(x) end

---- tables of tensors ----

local function sorted_keys(value)
  local keys = {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if type(a) == type(b) then return a < b end
    return type(a) == "number"
  end)
  return keys
end

local function child(path, key)
  return type(key) == "number" and ("%s[%s]"):format(path, key) or ("%s.%s"):format(path, key)
end

--- The tensors of a value, with the path of each, in an order of their keys.
local function leaves(where, path, value, list)
  list = list or {}
  if core.is_tensor(value) then
    list[#list + 1] = { path = path, tensor = value }
  elseif type(value) == "table" then
    for _, key in ipairs(sorted_keys(value)) do
      if type(key) ~= "number" and type(key) ~= "string" then
        core.error(("%s: a key of %s is a %s; keys are names or numbers"):format(where, path, type(key)))
      end
      leaves(where, child(path, key), value[key], list)
    end
  else
    core.error(("%s: %s is %s; it must be a tensor%s"):format(where, path, check.show(value),
      type(value) == "number" and ", such as sgl.constant(0, \"f32\")" or ", or a table of tensors"))
  end
  return list
end

--- A value of the same shape, with fn(i) in the place of its i-th tensor.
local function rebuild(value, fn, count)
  count = count or { 0 }
  if core.is_tensor(value) then
    count[1] = count[1] + 1
    return fn(count[1])
  end
  local copy = {}
  for _, key in ipairs(sorted_keys(value)) do copy[key] = rebuild(value[key], fn, count) end
  return copy
end

local function tensors(list)
  local found = {}
  for i, leaf in ipairs(list) do found[i] = leaf.tensor end
  return found
end

--- What a function gave, as a list: it must be like `wanted`, name by name and type by type.
local function matching(where, wanted, path, value, what)
  local given, index = leaves(where, path, value), {}
  for _, leaf in ipairs(given) do index[leaf.path] = leaf end
  local found = {}
  for i, leaf in ipairs(wanted) do
    local own = index[leaf.path]
    if not own then core.error(("%s: %s gives no %s"):format(where, what, leaf.path)) end
    if type_text(own.tensor) ~= type_text(leaf.tensor) then
      core.error(("%s: %s is %s, and %s gives %s for it; the shape and dtype must stay"):format(where, leaf.path,
        type_text(leaf.tensor), what, type_text(own.tensor)))
    end
    found[i] = own.tensor
    index[leaf.path] = nil
  end
  for _, leaf in ipairs(given) do
    if index[leaf.path] then
      core.error(("%s: %s gives %s, which is not there before"):format(where, what, leaf.path))
    end
  end
  return found
end

local function parameters(list)
  local made = {}
  for i, leaf in ipairs(list) do made[i] = core.parameter(core.dtype(leaf.tensor), core.dims(leaf.tensor)) end
  return made
end

local function needs_function(where, name, fn)
  if type(fn) == "function" then return end
  core.error(("%s: %s must be a function, not %s"):format(where, name, check.show(fn)))
end

---- scan ----

local function length_of(inputs, options)
  local length, from = options.length, "length"
  for _, leaf in ipairs(inputs) do
    local extent = core.dims(leaf.tensor)[1]
    if not extent then
      core.error(("scan: %s is %s; it has no first dimension to go along"):format(leaf.path, type_text(leaf.tensor)))
    end
    if length and extent ~= length then
      core.error(("scan: %s is %s, and %s says %d turns; the first extents must be the same"):format(leaf.path,
        type_text(leaf.tensor), from, length))
    end
    length, from = extent, leaf.path
  end
  if not length then core.error("scan: give xs to go along, or { length = n }") end
  return length
end

--- xs[at], without the first dimension.
local function slice(x, at)
  local dims = core.dims(x)
  table.remove(dims, 1)
  return emit("reshape", { emit("dynamic_slice", { x, at }, { axis = 0, size = 1 }) }, { dims = dims })
end

--- One turn's y, written into the stack of all turns; a parameter is that stack.
local function push(y, at, length, along)
  local dims = core.dims(y)
  table.insert(dims, 1, length)
  local stack = core.parameter(core.dtype(y), dims)
  for _, name in ipairs(along) do core.padding_stack(stack, name) end
  dims[1] = 1
  return emit("dynamic_update", { stack, emit("reshape", { y }, { dims = dims }), at }, { axis = 0 })
end

-- The dims with buckets that a loop over `inputs` goes along, after the graph has been told so.
local function tell_turn(at, inputs, reverse)
  local along = {}
  for name in pairs(trace.dims()) do
    for _, leaf in ipairs(inputs) do
      if core.padded(leaf.tensor, name, 0) then
        along[#along + 1] = name
        break
      end
    end
  end
  table.sort(along)
  for _, name in ipairs(along) do core.padding_turn(at, name, reverse) end
  return along
end

local function tell_likeness(made, carry)
  if next(trace.dims()) == nil then return end
  for i, leaf in ipairs(carry) do core.padding_like(made[i], leaf.tensor) end
end

local function zeros(dtype, dims) return emit("broadcast", { core.constant(0, dtype) }, { dims = dims }) end

--- Runs carry, y = f(carry, x, i) for each x of xs along the first dimension, and gives the last carry and all y,
--- stacked along a new first dimension. The carry keeps its shapes and dtypes. Its gradient keeps what it needs of each
--- turn; with recompute the carries only, and the turns are run again.
---@param f fun(carry: any, x: any, i: sgl.tensor): any, any
---@param init any tensors, in tables of any nesting
---@param xs any tensors of one first extent; nil with { length = n }
---@param options { reverse: boolean?, length: integer?, recompute: boolean? }?
---@return any carry, any ys
function control.scan(f, init, xs, options)
  needs_function("scan", "the first argument", f)
  options = check.options("scan", options, { reverse = "flag?", length = "count?", recompute = "flag?" })
  local carry = init ~= nil and leaves("scan", "carry", init) or {}
  local inputs = xs ~= nil and leaves("scan", "xs", xs) or {}
  local length = length_of(inputs, options)
  local region, ys, stacks = core.regions("scan"), nil, {}
  core.region(region, function()
    local index = core.parameter("i64", {})
    local made = parameters(carry)
    local at = options.reverse and emit("sub", { core.constant(length - 1, "i64"), index }) or index
    local along = tell_turn(at, inputs, options.reverse)
    tell_likeness(made, carry)
    local x = xs ~= nil and rebuild(xs, function(i) return slice(inputs[i].tensor, at) end) or nil
    local given = init ~= nil and rebuild(init, function(i) return made[i] end) or nil
    local new, y = trace.turn(at, f, given, x, at)
    local results = init ~= nil and matching("scan", carry, "carry", new, "the function") or {}
    ys = y
    if y ~= nil then
      for _, leaf in ipairs(leaves("scan", "y", y)) do
        results[#results + 1] = push(leaf.tensor, at, length, along)
        stacks[#stacks + 1] = { dtype = core.dtype(results[#results]), dims = core.dims(results[#results]) }
      end
    end
    return results
  end)
  local arguments = tensors(carry)
  for _, stack in ipairs(stacks) do arguments[#arguments + 1] = zeros(stack.dtype, stack.dims) end
  if #arguments == 0 then core.error("scan: the function has neither a carry nor a second result to give") end
  local attributes = { steps = length, recompute = options.recompute and 1 or 0 }
  local out = core.emit_regions("scan", arguments, attributes, region, #arguments)
  local last = init ~= nil and rebuild(init, function(i) return out[i] end) or nil
  return last, ys ~= nil and rebuild(ys, function(i) return out[#carry + i] end) or nil
end

---- while ----

local function predicate(where, name, value)
  if core.is_tensor(value) and type_text(value) == "bool[]" then return value end
  core.error(("%s: %s is %s; it must be a bool scalar, such as sgl.less(a, b) of scalars"):format(where, name,
    core.is_tensor(value) and type_text(value) or check.show(value)))
end

--- Runs carry = body(carry, i) as long as condition(carry, i) holds, at most `limit` times, and gives the last carry.
--- It has a gradient only where a limit says how many turns can have to be kept.
---@param options table init, condition(carry, i) -> bool [], body(carry, i) -> carry, limit, recompute
---@return any carry
function control.while_loop(options)
  options = check.options("while_loop", options,
    { init = "any", condition = "call", body = "call", limit = "count?", recompute = "flag?" })
  local init = options.init
  local carry = leaves("while_loop", "carry", init)
  if #carry == 0 then core.error("while_loop: init holds no tensor") end
  local function in_region(fn, finish)
    return function()
      local index = core.parameter("i64", {})
      local made = parameters(carry)
      tell_likeness(made, carry)
      return finish(trace.turn(index, fn, rebuild(init, function(i) return made[i] end), index))
    end
  end
  local region = core.regions("while")
  core.region(region, in_region(options.condition, function(value)
    return { predicate("while_loop", "what condition gives", value) }
  end))
  core.region(region + 1, in_region(options.body, function(value)
    return matching("while_loop", carry, "carry", value, "body")
  end))
  local attributes = { limit = options.limit or -1, recompute = options.recompute and 1 or 0 }
  local out = core.emit_regions("while", tensors(carry), attributes, region, #carry)
  return rebuild(init, function(i) return out[i] end)
end

---- cond ----

--- What yes(...) gives where the predicate holds, else what no(...) gives: alike in names, shapes and dtypes. Only one
--- of them is run. (sgl.select runs both, and takes a condition per element.)
---@param p sgl.tensor bool []
---@param yes fun(...): any
---@param no fun(...): any
---@param ... any handed to both
---@return any
function control.cond(p, yes, no, ...)
  predicate("cond", "the predicate", p)
  needs_function("cond", "the second argument", yes)
  needs_function("cond", "the third argument", no)
  local region, arguments = core.regions("cond"), table.pack(...)
  local given, list, results
  core.region(region, function()
    given = trace.turn(nil, yes, table.unpack(arguments, 1, arguments.n))
    list = leaves("cond", "result", given)
    results = tensors(list)
    return results
  end)
  core.region(region + 1, function()
    local other = trace.turn(nil, no, table.unpack(arguments, 1, arguments.n))
    return matching("cond", list, "result", other, "the third argument")
  end)
  local out = core.emit_regions("cond", { p }, {}, region, #results)
  return rebuild(given, function(i) return out[i] end)
end

return control
