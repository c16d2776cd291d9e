--- Ops as functions and as methods of tensors: sgl.exp(x) and x:exp() are the same.
--- Comes in: tensors and numbers. Goes out: tensors of the graph being traced. Meanings stand in docs/ops.md;
--- elementwise ops broadcast as NumPy's and promote as JAX's. Axes count from 0, negative ones from the end. What is no
--- op of the graph is a formula over those that are (functions.lua, windows.lua, einsum.lua).

local check = require "sgl.check"
local core = require "sgl.core"
local names_of = require "sgl.names"
local trace = require "sgl.trace"
local emit = core.emit

---@class sgl.tensor
local ops = {}

local unary = {
  "neg", "abs", "sign", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf", "sigmoid", "floor",
  "is_finite", "silu", "stop_gradient", "log1p", "expm1", "round", "bit_not",
}
local binary = {
  "add", "sub", "mul", "div", "remainder", "pow", "maximum", "minimum", "equal", "not_equal", "less", "less_equal",
  "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right",
}
for _, name in ipairs(unary) do
  ops[name] = function(x) return emit(name, { x }) end
end
for _, name in ipairs(binary) do
  ops[name] = function(a, b) return emit(name, { a, b }) end
end

ops.logical_not = function(x) return emit("not", { x }) end
ops.logical_and = function(a, b) return emit("and", { a, b }) end
ops.logical_or = function(a, b) return emit("or", { a, b }) end
ops.greater = function(a, b) return emit("less", { b, a }) end
ops.greater_equal = function(a, b) return emit("less_equal", { b, a }) end

--- yes where the condition holds, else no.
function ops.select(condition, yes, no) return emit("select", { condition, yes, no }) end

--- x in another dtype.
---@param dtype string "f32", "f64", "i64", "i32", "bool", ...
function ops.cast(x, dtype) return emit("cast", { x }, { to = dtype }) end

--- Gaussian error linear unit; the tanh form unless exact.
---@param exact boolean?
function ops.gelu(x, exact) return emit("gelu", { x }, { exact = exact and 1 or 0 }) end

--- x held within low..high, numbers or tensors; nil: no bound. The gradient passes where x is within, bounds included.
function ops.clamp(x, low, high)
  if not core.is_tensor(low) and not core.is_tensor(high) then
    return emit("clamp", { x }, { minimum = low or -math.huge, maximum = high or math.huge })
  end
  if low ~= nil then x = emit("maximum", { x, low }) end
  return high == nil and x or emit("minimum", { x, high })
end

---- shapes ----

--- The extents as a list, or one of them (axis from 0, negative from the end).
function ops.shape(x, axis)
  local dims = core.dims(x)
  if axis == nil then return dims end
  local extent = dims[(axis < 0 and #dims + axis or axis) + 1]
  if not extent then
    core.error(("shape: axis %s of %s: there are %d, counted from 0"):format(tostring(axis), tostring(x), #dims))
  end
  return extent
end

function ops.dtype(x) return core.dtype(x) end
function ops.rank(x) return core.rank(x) end

local function list(...)
  local first = ...
  if type(first) == "table" then return first end
  return { ... }
end

--- x:reshape(2, -1) or x:reshape{2, -1}; one extent may be -1.
function ops.reshape(x, ...) return emit("reshape", { x }, { dims = list(...) }) end

--- Repeats extents of 1, dims aligned at the end.
function ops.broadcast(x, ...) return emit("broadcast", { x }, { dims = list(...) }) end

--- Result dimension i is dimension order[i + 1] of x; with no order the last two change places. A written order
--- that changes nothing is refused: PyTorch's x.transpose(0, 1) is another thing.
function ops.transpose(x, ...)
  local order = list(...)
  if select("#", ...) == 2 and core.rank(x) == 2 and order[1] == 0 and order[2] == 1 then
    core.error("transpose: the order 0, 1 changes nothing: it names all dimensions in their new order, as "
      .. "x:transpose(1, 0) does; x:transpose() changes the places of the last two")
  end
  if #order == 0 then
    local rank = core.rank(x)
    if rank < 2 then core.error("transpose: a tensor of rank " .. rank .. " has no two dimensions to exchange") end
    for i = 1, rank do order[i] = i - 1 end
    order[rank - 1], order[rank] = rank - 1, rank - 2
  end
  return emit("transpose", { x }, { order = order })
end

--- x[start:stop:step] along axis; negative start and stop count from the end.
function ops.slice(x, axis, start, stop, step)
  if type(axis) ~= "number" or type(start) ~= "number" then
    core.error("slice: its axis and its start are integers: x:slice(axis, start, stop, step)")
  end
  local dims = core.dims(x)
  local extent = dims[(axis < 0 and #dims + axis or axis) + 1]
  if not extent then
    core.error(("slice: axis %s of %s: there are %d, counted from 0"):format(tostring(axis), tostring(x), #dims))
  end
  if stop == nil then stop = extent end
  if start < 0 then start = extent + start end
  if stop < 0 then stop = extent + stop end
  return emit("slice", { x }, { axis = axis, start = start, stop = stop, step = step or 1 })
end

function ops.pad(x, axis, before, after, value)
  return emit("pad", { x }, { axis = axis, before = before, after = after, value = value or 0 })
end

--- The tensors one after another along axis.
function ops.concat(tensors, axis) return emit("concat", tensors, { axis = axis or 0 }) end

--- The elements along an axis, or each of a list of axes, in the opposite order.
function ops.flip(x, axes) return emit("flip", { x }, { axes = axes }) end

--- The elements of the tensors one after another, 1-D; unpack is its inverse.
function ops.pack(tensors) return emit("pack", tensors) end

--- Cuts a 1-D tensor into tensors of the given shapes.
---@param shapes integer[][]
function ops.unpack(x, shapes)
  local ranks, dims = {}, {}
  for i, shape in ipairs(shapes) do
    ranks[i] = #shape
    for _, extent in ipairs(shape) do dims[#dims + 1] = extent end
  end
  return emit("unpack", { x }, { ranks = ranks, dims = dims })
end

---- reductions ----

local function reduction(op)
  return function(x, axes, keep)
    if keep ~= nil and type(keep) ~= "boolean" then
      core.error(("%s: keep must be true or false, not %s; several axes are a list: { 0, 1 }"):format(
        op:gsub("^reduce_", ""), tostring(keep)))
    end
    if axes == nil then
      axes = {}
      for i = 1, core.rank(x) do axes[i] = i - 1 end
    elseif type(axes) == "number" then
      axes = { axes }
    end
    return emit(op, { x }, { axes = axes, keep = keep and 1 or 0 })
  end
end

--- x:sum(), x:sum(-1), x:sum({0, 1}, true): over all axes, or those given; keep leaves them with extent 1.
ops.mean, ops.logsumexp = reduction "mean", reduction "logsumexp"
ops.max, ops.min = reduction "reduce_max", reduction "reduce_min"
local sum, prod = reduction "reduce_sum", reduction "reduce_prod"

--- Of bool: how many are true, i64.
function ops.sum(x, axes, keep)
  if core.dtype(x) == "bool" then x = ops.cast(x, "i64") end
  return sum(x, axes, keep)
end

--- Products; of bool as of 0 and 1, i64.
function ops.prod(x, axes, keep)
  if core.dtype(x) == "bool" then x = ops.cast(x, "i64") end
  return prod(x, axes, keep)
end

--- Whether any, or each, element is not 0.
function ops.any(x, axes, keep) return ops.max(ops.cast(x, "bool"), axes, keep) end
function ops.all(x, axes, keep) return ops.min(ops.cast(x, "bool"), axes, keep) end

local function arg_extreme(op)
  return function(x, axis, keep)
    if axis == nil then x, axis = emit("reshape", { x }, { dims = { -1 } }), 0 end
    return emit(op, { x }, { axis = axis, keep = keep and 1 or 0 })
  end
end

--- Where along axis (without one: among all elements) the extreme stands, i64; the first of ties.
ops.argmax, ops.argmin = arg_extreme "argmax", arg_extreme "argmin"

---- along an axis ----

---@class sgl.ops.running
---@field reverse boolean? from the last element to the first
---@field exclusive boolean? without the element itself

local function running(op)
  return function(x, axis, options)
    options = check.options(op, options, { reverse = "flag?", exclusive = "flag?" })
    return emit(op, { x }, { axis = axis or -1, reverse = options.reverse or false,
      exclusive = options.exclusive or false })
  end
end

--- Running sums and products along axis (the last one by default).
ops.cumsum, ops.cumprod = running "cumulative_sum", running "cumulative_prod"

--- y_i = a_i * y_(i-1) + b_i along axis, y_0 = b_0: exponential averages, state-space layers.
function ops.recurrence(a, b, axis, reverse)
  return emit("recurrence", { a, b }, { axis = axis or -1, reverse = reverse or false })
end

--- values, indices in order along axis (the last one by default); stable, NaN last.
function ops.sort(x, axis, descending)
  return emit("sort", { x }, { axis = axis or -1, descending = descending or false })
end

--- values, indices of the k largest of the last dimension (`axis` can name no other), descending.
function ops.top_k(x, k, axis)
  if axis ~= nil and axis ~= -1 and axis ~= core.rank(x) - 1 then
    core.error(("top_k: goes along the last dimension, not %s: transpose x before and the results after"):format(
      tostring(axis)))
  end
  return emit("top_k", { x }, { k = k })
end

--- x[indices] along axis, the other dimensions running together (PyTorch's gather); outside of x: 0.
function ops.take_along(x, indices, axis) return emit("take_along", { x, indices }, { axis = axis or -1 }) end

--- Zeros of `extent` along axis, plus each update at its index (PyTorch's scatter_add).
function ops.add_along(indices, updates, axis, extent)
  return emit("add_along", { indices, updates }, { axis = axis or -1, extent = extent })
end

---- products, by index ----

--- [..., m, k] x [..., k, n] -> [..., m, n]
function ops.matmul(a, b) return emit("matmul", { a, b }) end

--- x [..., in] weight [out, in] bias [out] -> [..., out]
function ops.linear(x, weight, bias)
  local low = trace.low(weight) -- of sgl.lora: the two thin products in place of the whole weight's
  local y = emit("linear", { x, low and low.weight or weight, bias })
  return low and y + emit("linear", { emit("linear", { x, low.a }), low.b }) * low.scale or y
end

--- Rows of table [v, ...] at integer indices.
function ops.gather(table, indices)
  if not core.is_tensor(indices) then
    core.error(("gather: its indices are a tensor of integers, not %s: x:gather(indices) gives rows of x; PyTorch's "
      .. "gather, along an axis, is x:take_along(indices, axis)"):format(check.show(indices)))
  end
  return emit("gather", { table, indices })
end
function ops.scatter_add(indices, updates, extent)
  return emit("scatter_add", { indices, updates }, { extent = extent })
end

-- A place is an i64 [] of the graph; a number of the script is one too.
local function place(at) return math.type(at) == "integer" and core.constant(at, "i64") or at end

--- `size` elements of x from `start` on along axis: start i64 [], known when the graph runs.
function ops.dynamic_slice(x, start, axis, size)
  return emit("dynamic_slice", { x, place(start) }, { axis = axis, size = size })
end
--- x with `update` written at `start` along axis.
function ops.dynamic_update(x, update, start, axis)
  return emit("dynamic_update", { x, update, place(start) }, { axis = axis })
end

---- generators ----

-- The extents of a list of lists ..., its numbers one after another, and whether they are true and false.
local function flattened(list)
  local dims, flat, first = {}, {}, list
  while type(first) == "table" do
    dims[#dims + 1] = #first
    first = first[1]
  end
  local function read(part, depth)
    if depth > #dims then
      if type(part) ~= type(first) then
        core.error(("constant: a %s stands in the list, after a %s"):format(type(part), type(first)))
      end
      flat[#flat + 1] = part == true and 1 or part == false and 0 or part
      return
    end
    if type(part) ~= "table" or #part ~= dims[depth] then
      core.error(("constant: a list of %s stands where the first has %d"):format(
        type(part) == "table" and #part or "none", dims[depth]))
    end
    for key in pairs(part) do
      if math.type(key) ~= "integer" or key < 1 or key > #part then
        local what = "constant: here is the key '%s'; it takes a table of numbers, nested by rows, as { { 1 }, { 2 } }"
        core.error(what:format(tostring(key)))
      end
    end
    for i = 1, #part do read(part[i], depth + 1) end
  end
  read(list, 1)
  return dims, flat, type(first) == "boolean"
end

--- A number as a tensor of rank 0, or a list of numbers (of lists of numbers, ...) as a tensor of that shape.
---@param value number|table
function ops.constant(value, dtype)
  if type(value) ~= "table" then return core.constant(value, dtype or "f32") end
  local dims, flat, is_bool = flattened(value)
  local counts = {}
  for i = 1, #flat do counts[i] = 1 end
  local whole = emit("segments", {}, { counts = counts, values = flat, dtype = dtype or (is_bool and "bool" or "f32") })
  return #dims == 1 and whole or emit("reshape", { whole }, { dims = dims })
end

-- PyTorch takes extents one by one; here a dtype follows them.
local function extents(what, dims)
  if type(dims) ~= "table" then core.error(("%s: the extents are a list: sgl.%s({ 2, 3 })"):format(what, what)) end
  return dims
end
local function filled(what, value)
  return function(dims, dtype)
    dims = extents(what, dims)
    return emit("broadcast", { core.constant(value, dtype or "f32") }, { dims = dims })
  end
end
ops.zeros, ops.ones = filled("zeros", 0), filled("ones", 1)

--- The same number everywhere: sgl.full({ 2, 3 }, 0.5).
function ops.full(dims, value, dtype) return filled("full", value)(dims, dtype) end

function ops.iota(dims, axis, dtype)
  dims = extents("iota", dims)
  return emit("iota", {}, { axis = axis or 0, dims = dims, dtype = dtype or "i64" })
end
function ops.segments(counts, values, dtype)
  return emit("segments", {}, { counts = counts, values = values, dtype = dtype or "f32" })
end

--- Uniform in [0, 1) and normal numbers; seed, step, offset i64 [], id an integer (docs/ops.md: random_uniform).
function ops.random_uniform(seed, step, offset, id, dims, dtype)
  return emit("random_uniform", { seed, step, offset }, { id = id, dims = dims, dtype = dtype or "f32" })
end
function ops.random_normal(seed, step, offset, id, dims, dtype)
  return emit("random_normal", { seed, step, offset }, { id = id, dims = dims, dtype = dtype or "f32" })
end

---- composites ----

function ops.rms_norm(x, gain, eps) return emit("rms_norm", { x, gain }, { eps = eps }) end
function ops.layer_norm(x, gain, bias, eps) return emit("layer_norm", { x, gain, bias }, { eps = eps }) end

--- Rotary positions: offset i64 [] of the first row, or i32 [b, t] of each; frequencies: a list, in place of theta's.
function ops.rope(x, offset, theta, frequencies)
  return emit("rope", { x, place(offset) }, { theta = theta, frequencies = frequencies })
end

--- out, lse of q [b,t,h,d], k [b,s,g,d], v [b,s,g,e]; options: scale, causal, window, query_segments i32 [b,t] with
--- key_segments i32 [b,s].
--- offset: how many keys are before the first query, default 0; scale: default 1 / sqrt(d).
---@param offset sgl.tensor|integer|nil
function ops.attention(q, k, v, offset, options)
  options = check.options("attention", options, {
    causal = "flag?", scale = "finite?", window = "count?", query_segments = "any?", key_segments = "any?",
  })
  local args = { q, k, v, place(offset or 0) }
  if options.query_segments or options.key_segments then
    if not options.query_segments or not options.key_segments then
      core.error("attention: query_segments and key_segments: give both or none")
    end
    args[5], args[6] = options.query_segments, options.key_segments
  end
  local scale = options.scale or math.max(ops.shape(q, -1) or 1, 1) ^ -0.5
  return emit("attention", args,
    { scale = scale, causal = options.causal and 1 or 0, window = options.window or 0 })
end

--- Loss in nats of each target; the targets that equal `ignore` give 0.
function ops.cross_entropy(logits, targets, ignore)
  return emit("cross_entropy", { logits, targets }, { ignore = ignore or -1 })
end
function ops.linear_cross_entropy(x, weight, targets, ignore)
  return emit("linear_cross_entropy", { x, weight, targets }, { ignore = ignore or -1 })
end

ops.einsum = require "sgl.einsum"
for _, formulas in ipairs { require "sgl.windows", require("sgl.functions")(ops) } do
  for name, formula in pairs(formulas) do ops[name] = formula end
end

-- A method that no tensor has; a number: x[1] is none of Lua's lists.
setmetatable(ops, {
  __index = function(_, name)
    if type(name) ~= "string" then
      core.error("a tensor is no list: x:index(i, { from, to }) takes places and ranges from 0 on, "
        .. "x:slice(axis, start, stop) a range")
    end
    local known = {}
    for op in next, ops do known[#known + 1] = op end
    table.sort(known)
    core.error(("tensors have no method '%s'%s"):format(name, names_of.hint(name, known)))
  end,
})
core.exact(ops, "sgl")
core.methods(ops)
return ops
