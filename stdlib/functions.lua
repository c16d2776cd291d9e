--- Functions that are formulas over the ops of the graph: activations, statistics, shapes, orders, random numbers.
--- Comes in: the table of ops. Goes out: a table of functions, merged into it by ops.lua, each a line or a few.
--- Odd invariant: where a formula has a kink, its gradient there is PyTorch's.

local core = require "sgl.core"
local layouts = require "sgl.plan.layouts"
local names_of = require "sgl.names"
local trace = require "sgl.trace"

---@param ops table
---@return table
return function(ops)
  local fn = {}

  local function axis_of(what, x, axis, rank)
    rank = rank or core.rank(x)
    if type(axis) ~= "number" then core.error(("%s: axis must be an integer, not %s"):format(what, tostring(axis))) end
    local found = axis < 0 and rank + axis or axis
    if found < 0 or found >= rank then
      core.error(("%s: axis %d of %s: there are %d, counted from 0"):format(what, axis, tostring(x), rank))
    end
    return found
  end

  ---- elementwise ----

  fn.where = ops.select
  function fn.ceil(x) return -ops.floor(-x) end
  function fn.tan(x) return ops.sin(x) / ops.cos(x) end
  function fn.log2(x) return ops.log(x) * (1 / math.log(2)) end
  function fn.log10(x) return ops.log(x) * (1 / math.log(10)) end
  function fn.exp2(x) return ops.exp(x * math.log(2)) end
  function fn.square(x) return x * x end
  function fn.is_nan(x) return ops.not_equal(x, x) end
  function fn.logical_xor(a, b) return ops.not_equal(ops.cast(a, "bool"), ops.cast(b, "bool")) end

  ---- layout ----

  --- x, laid out over a mesh: sgl.shard(x, { tp = 1 }) splits its second dimension over tp from here on, as far as what
  --- follows goes along. A mesh without the axis, or no mesh, changes nothing; the numbers are the same under all.
  function fn.shard(x, layout)
    if not core.is_tensor(x) or type(layout) ~= "table" then
      core.error("shard: give a tensor and a table of axes, such as sgl.shard(x, { tp = 1 })")
    end
    local split, known = {}, {}
    for i, axis in ipairs(layouts.axes) do
      known[axis] = true
      split[i] = layout[axis] ~= nil and axis_of("shard", x, layout[axis]) or -1
    end
    split[#split + 1] = -1 -- micro-batches, which no script lays out
    for axis in pairs(layout) do
      if not known[axis] then
        core.error(("shard: there is no mesh axis '%s'%s"):format(tostring(axis),
          names_of.hint(tostring(axis), layouts.axes)))
      end
    end
    return core.emit("laid_out", { x }, { split = split })
  end

  ---- activations ----

  function fn.relu(x) return ops.select(ops.less_equal(x, 0), 0, x) end
  function fn.leaky_relu(x, slope) return ops.select(ops.less(0, x), x, x * (slope or 0.01)) end
  --- alpha * (e^x - 1) below 0 (Clevert et al., arXiv:1511.07289)
  function fn.elu(x, alpha) return ops.select(ops.less(0, x), x, ops.expm1(ops.clamp(x, nil, 0)) * (alpha or 1)) end
  --- log(1 + e^x), of numbers far from 0 too
  function fn.softplus(x) return ops.maximum(x, 0) + ops.log1p(ops.exp(-ops.abs(x))) end
  function fn.log_sigmoid(x) return -fn.softplus(-x) end
  --- x * tanh(softplus(x)) (Misra, arXiv:1908.08681)
  function fn.mish(x) return x * ops.tanh(fn.softplus(x)) end
  --- x held within low..high, whose gradient is 0 at both
  function fn.hardtanh(x, low, high)
    low, high = low or -1, high or 1
    return ops.select(ops.less_equal(x, low), low, ops.select(ops.less_equal(high, x), high, x))
  end
  function fn.hardsigmoid(x) return fn.hardtanh(x * (1 / 6) + 0.5, 0, 1) end
  --- x * hardsigmoid(x)
  function fn.hardswish(x)
    local inner = ops.clamp(x, -3, 3)
    return ops.select(ops.less_equal(x, -3), 0, ops.select(ops.less_equal(3, x), x, inner * (inner + 3) * (1 / 6)))
  end

  -- formula(x), which goes over the last dimension, over `axis` (the last one by default).
  local function over(what, formula, x, axis)
    local last, order = core.rank(x) - 1, {}
    axis = axis_of(what, x, axis or -1)
    if axis == last then return formula(x) end
    for i = 0, last do order[i + 1] = i end
    order[axis + 1], order[last + 1] = last, axis
    return ops.transpose(formula(ops.transpose(x, order)), order)
  end

  --- e^x / sum of e^x over axis (the last one by default).
  function fn.softmax(x, axis)
    return over("softmax", function(y) return core.emit("softmax", { y }) end, x, axis)
  end

  --- x - logsumexp(x) over axis (the last one by default), the maximum taken off both first: numbers far from 0 keep
  --- their differences; halves are worked out in f32.
  function fn.log_softmax(x, axis)
    local dtype = core.dtype(x)
    local wide = dtype == "f64" and x or ops.cast(x, "f32")
    axis = axis_of("log_softmax", x, axis or -1)
    wide = wide - ops.stop_gradient(ops.max(wide, axis, true))
    local y = wide - ops.logsumexp(wide, axis, true)
    return (dtype == "bf16" or dtype == "f16") and ops.cast(y, dtype) or y
  end

  ---- statistics ----

  --- How many elements are reduced to one.
  local function reduced(x, axes)
    local dims, count = core.dims(x), 1
    if type(axes) == "number" then axes = { axes } end
    if axes == nil then
      for _, extent in ipairs(dims) do count = count * extent end
    else
      for _, axis in ipairs(axes) do count = count * (dims[(axis < 0 and #dims + axis or axis) + 1] or 1) end
    end
    return count
  end

  --- The mean square distance from the mean; `correction` (1, as PyTorch's) is taken off the number of elements, so
  --- that of one element it is NaN.
  function fn.var(x, axes, keep, correction)
    local distance = x - ops.mean(x, axes, true)
    return ops.sum(distance * distance, axes, keep) / math.max(reduced(x, axes) - (correction or 1), 0)
  end
  function fn.std(x, axes, keep, correction) return ops.sqrt(fn.var(x, axes, keep, correction)) end

  ---- shapes ----

  --- A dimension of extent 1 put in before `axis`; -1: at the end.
  function fn.unsqueeze(x, axis)
    local dims = core.dims(x)
    table.insert(dims, axis_of("unsqueeze", x, axis, #dims + 1) + 1, 1)
    return ops.reshape(x, dims)
  end

  --- Without the dimension of extent 1 at `axis`; without an axis: without any such.
  function fn.squeeze(x, axis)
    local dims, left = core.dims(x), {}
    if axis then
      axis = axis_of("squeeze", x, axis)
      if dims[axis + 1] ~= 1 then
        core.error(("squeeze: dimension %d of %s is no 1"):format(axis, tostring(x)))
      end
    end
    for i, extent in ipairs(dims) do
      if extent ~= 1 or (axis and i ~= axis + 1) then left[#left + 1] = extent end
    end
    return ops.reshape(x, left)
  end

  --- Dimensions first..last (0 and -1 by default) made one.
  function fn.flatten(x, first, last)
    local dims, shape, product = core.dims(x), {}, 1
    if #dims == 0 then return ops.reshape(x, 1) end
    first, last = axis_of("flatten", x, first or 0), axis_of("flatten", x, last or -1)
    for i, extent in ipairs(dims) do
      local inside = i > first and i <= last + 1
      if inside then product = product * extent end
      if not inside then shape[#shape + 1] = extent elseif i == last + 1 then shape[#shape + 1] = product end
    end
    return ops.reshape(x, shape)
  end

  --- The tensors side by side along a new axis.
  function fn.stack(tensors, axis)
    local parts = {}
    if type(tensors) ~= "table" then core.error("stack: the tensors are a list: sgl.stack({ a, b }, axis)") end
    for i, x in ipairs(tensors) do parts[i] = fn.unsqueeze(x, axis or 0) end
    if #parts == 0 then core.error("stack: a list of tensors is needed") end
    return ops.concat(parts, axis_of("stack", parts[1], axis or 0))
  end

  --- Several results: `parts` equal ones, or one of each size of a list.
  ---@param parts integer|integer[]
  function fn.split(x, parts, axis)
    axis = axis_of("split", x, axis or 0)
    local extent, sizes, out, start = ops.shape(x, axis), parts, {}, 0
    if type(parts) ~= "number" and type(parts) ~= "table" then
      core.error(("split: give the number of parts or a list of their sizes, not %s"):format(tostring(parts)))
    end
    if type(parts) == "number" then
      if parts < 1 or extent % parts ~= 0 then
        core.error(("split: %d elements along axis %d do not make %d equal parts"):format(extent, axis, parts))
      end
      sizes = {}
      for i = 1, parts do sizes[i] = extent // parts end
    end
    for i, size in ipairs(sizes) do
      out[i] = ops.slice(x, axis, start, start + size)
      start = start + size
    end
    if start ~= extent then
      core.error(("split: the sizes add up to %d, axis %d has %d elements"):format(start, axis, extent))
    end
    return table.unpack(out)
  end

  --- Element i moves to i + shift along axis; what leaves at one end comes in at the other.
  function fn.roll(x, shift, axis)
    axis = axis_of("roll", x, axis or 0)
    if type(shift) ~= "number" then core.error(("roll: shift must be an integer, not %s"):format(tostring(shift))) end
    local extent = ops.shape(x, axis)
    local by = extent > 0 and shift % extent or 0
    if by == 0 then return x end
    return ops.concat({ ops.slice(x, axis, extent - by, extent), ops.slice(x, axis, 0, extent - by) }, axis)
  end

  --- x:index(0, ":", {1, 5}, {nil, nil, 2}): for each dimension an integer (that element; the dimension goes), ":"
  --- (all), or { start, stop, step }. Dimensions not named are whole.
  function fn.index(x, ...)
    local gone, rank, whole, places = {}, core.rank(x), tostring(x), { ... }
    for i = 1, select("#", ...) do
      local what = places[i]
      if i > rank then core.error(("index: %d places for %s"):format(select("#", ...), whole)) end
      if math.type(what) == "integer" then
        local extent = ops.shape(x, i - 1)
        local at = what < 0 and extent + what or what
        if at < 0 or at >= extent then
          core.error(("index: %d along axis %d of %s"):format(what, i - 1, whole))
        end
        x, gone[i] = ops.slice(x, i - 1, at, at + 1), true
      elseif type(what) == "table" then
        x = ops.slice(x, i - 1, what[1] or 0, what[2], what[3])
      elseif what ~= ":" then
        local hint = core.is_tensor(what) and "; places that are a tensor are for gather, a mask is for select" or ""
        core.error(("index: place %d must be an integer, ':' or { start, stop, step }%s"):format(i, hint))
      end
    end
    local dims = {}
    for i, extent in ipairs(core.dims(x)) do
      if not gone[i] then dims[#dims + 1] = extent end
    end
    return #dims == rank and x or ops.reshape(x, dims)
  end

  ---- by place ----

  --- indices [...] -> [..., classes]: 1 where the class is the index, else 0.
  function fn.one_hot(indices, classes, dtype)
    return ops.cast(ops.equal(fn.unsqueeze(indices, -1), ops.iota({ classes }, 0)), dtype or "f32")
  end

  --- Where along axis the elements come from that sort would put there.
  function fn.argsort(x, axis, descending) return (select(2, ops.sort(x, axis, descending))) end

  --- [rows, columns] bool: column - row <= k (lower), >= k (upper).
  local function triangle(rows, columns, k, lower)
    local distance = ops.iota({ rows, columns }, 1) - ops.iota({ rows, columns }, 0)
    if lower then return ops.less_equal(distance, k or 0) end
    return ops.greater_equal(distance, k or 0)
  end

  --- The last two dimensions' elements on and below (above) diagonal k, others 0.
  function fn.tril(x, k) return ops.select(triangle(ops.shape(x, -2), ops.shape(x, -1), k, true), x, 0) end
  function fn.triu(x, k) return ops.select(triangle(ops.shape(x, -2), ops.shape(x, -1), k, false), x, 0) end
  function fn.eye(n, dtype) return ops.cast(ops.equal(ops.iota({ n, n }, 0), ops.iota({ n, n }, 1)), dtype or "f32") end

  ---- random ----

  -- Numbers of the run: by its seed, the step and the place in the script; those of an evaluation are the same each
  -- time.
  local function drawn(what, op)
    return function(dims, dtype)
      if type(dims) ~= "table" then core.error(("%s: the extents are a list: sgl.%s({ 2, 3 })"):format(what, what)) end
      local seed, step, id = trace.random()
      return op(seed, step, core.constant(0, "i64"), id, dims, dtype or (trace.is_tracing() and trace.dtype() or "f32"))
    end
  end

  --- Normal numbers with mean 0 and deviation 1, and numbers in [0, 1), others in each step and each turn of a loop.
  fn.normal, fn.uniform = drawn("normal", ops.random_normal), drawn("uniform", ops.random_uniform)

  local chance = drawn("bernoulli", ops.random_uniform)
  --- bool, true with probability p, a number or a tensor.
  function fn.bernoulli(dims, p) return ops.less(chance(dims), p) end

  --- bool, true with probability p; the other arguments as random_uniform's.
  function fn.random_bernoulli(seed, step, offset, id, dims, p)
    return ops.less(ops.random_uniform(seed, step, offset, id, dims), p)
  end

  return fn
end
