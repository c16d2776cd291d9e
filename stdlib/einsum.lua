--- einsum: sums of products over labelled dimensions, sgl.einsum("bij,bjk->bik", a, b).
--- Comes in: an equation as NumPy's, and a tensor for each of its terms. Goes out: a tensor. Each letter is a
--- dimension; a letter that the result leaves out is summed over, one that stands twice in a term takes the diagonal,
--- "..." stands for dimensions that broadcast. Without "->" the result has the letters that occur once, by alphabet.
--- Odd invariant: terms are multiplied from left to right; what only one term has is summed before its product is made.

local core = require "sgl.core"
local emit = core.emit

local function shape_text(x) return "[" .. table.concat(core.dims(x), ",") .. "]" end

local function refuse(equation, format, ...)
  core.error(("einsum '%s': " .. format):format(equation, ...))
end

--- "b...ij" -> { "b", "...", "i", "j" }
local function read_term(equation, term)
  local labels, at, dots = {}, 1, false
  while at <= #term do
    local letter = term:sub(at, at)
    if term:sub(at, at + 2) == "..." and not dots then
      letter, dots = "...", true
    elseif not letter:match("%a") then
      refuse(equation, "'%s' is neither a letter nor the only '...' of its term", letter)
    end
    labels[#labels + 1] = letter
    at = at + #letter
  end
  return labels, dots
end

--- The terms before the arrow, and the result's labels or nil.
local function read_equation(equation)
  if type(equation) ~= "string" then core.error("einsum: the equation must be a string, as 'ij,jk->ik'") end
  local text = equation:gsub("%s", "")
  local arrow = text:find("->", 1, true)
  local left, right = text, nil
  if arrow then left, right = text:sub(1, arrow - 1), text:sub(arrow + 2) end
  local terms = {}
  for term in (left .. ","):gmatch("([^,]*),") do terms[#terms + 1] = read_term(equation, term) end
  return terms, right and read_term(equation, right)
end

local function index_of(list, wanted)
  for i, value in ipairs(list) do
    if value == wanted then return i end
  end
end

--- Puts labels "..1", "..2", counted from the last, in the place of "..."; returns how many.
local function spell_out(equation, term, x, number)
  local rank, dots = core.rank(x), index_of(term, "...")
  local hidden = rank - (dots and #term - 1 or #term)
  if hidden < 0 or (hidden > 0 and not dots) then
    refuse(equation, "term %d names %d dimensions, argument %d is %s", number, dots and #term - 1 or #term, number,
      shape_text(x))
  end
  local labels = {}
  for _, label in ipairs(term) do
    if label ~= "..." then
      labels[#labels + 1] = label
    else
      for i = hidden, 1, -1 do labels[#labels + 1] = ".." .. i end
    end
  end
  return labels, dots and hidden or 0
end

local function transpose(x, labels, wanted)
  local order, same = {}, true
  for i, label in ipairs(wanted) do
    order[i] = index_of(labels, label) - 1
    same = same and order[i] == i - 1
  end
  return same and x or emit("transpose", { x }, { order = order })
end

--- A label that stands twice: the two dimensions side by side, as one, of which every (n + 1)-th element is taken.
local function take_diagonal(equation, x, labels)
  for first, label in ipairs(labels) do
    local rest, order = {}, { first - 1 }
    for i, other in ipairs(labels) do
      if i > first and other == label and #order == 1 then
        order[2] = i - 1
      elseif i ~= first then
        rest[#rest + 1] = i
      end
    end
    if order[2] then
      local dims, left = core.dims(x), { label }
      local n = dims[first]
      if dims[order[2] + 1] ~= n then
        refuse(equation, "label %s is both %d and %d in %s", label, n, dims[order[2] + 1], shape_text(x))
      end
      local shape = { n * n }
      for i, at in ipairs(rest) do
        order[2 + i], shape[1 + i], left[1 + i] = at - 1, dims[at], labels[at]
      end
      x = emit("reshape", { emit("transpose", { x }, { order = order }) }, { dims = shape })
      x = emit("slice", { x }, { axis = 0, start = 0, stop = n * n, step = n + 1 })
      return take_diagonal(equation, x, left)
    end
  end
  return x, labels
end

--- Extents of 1 of "..." broadcast: they are dropped where another term has more. Others must agree.
local function agree(equation, x, labels, extents, number)
  local dims, left, shape = core.dims(x), {}, {}
  for i, label in ipairs(labels) do
    local known = extents[label]
    local dropped = label:sub(1, 2) == ".." and dims[i] == 1 and known ~= 1
    if not dropped then
      if known ~= dims[i] then
        refuse(equation, "label %s is %d, and %d in argument %d, %s", label, known, dims[i], number, shape_text(x))
      end
      left[#left + 1], shape[#shape + 1] = label, dims[i]
    end
  end
  return #left == #labels and x or emit("reshape", { x }, { dims = shape }), left
end

--- Sums over the labels that are not kept.
local function sum_out(x, labels, kept)
  local axes, left = {}, {}
  for i, label in ipairs(labels) do
    if kept[label] then left[#left + 1] = label else axes[#axes + 1] = i - 1 end
  end
  return #axes == 0 and x or emit("reduce_sum", { x }, { axes = axes, keep = 0 }), left
end

--- x with the dimensions `order`, those that it has not being 1.
local function aligned(x, labels, order)
  local own, shape, dims = {}, {}, core.dims(x)
  for i, label in ipairs(order) do
    local at = index_of(labels, label)
    if at then own[#own + 1] = label end
    shape[i] = at and dims[at] or 1
  end
  return emit("reshape", { transpose(x, labels, own) }, { dims = shape })
end

local is_float = { f64 = true, f32 = true, bf16 = true, f16 = true, f8e4m3 = true, f8e5m2 = true }

--- The product of two terms, summed over what both have and nobody needs any more.
local function multiply(a, of_a, b, of_b, kept)
  local both, only_a, only_b, contracted = {}, {}, {}, false
  for _, label in ipairs(of_a) do
    local shared = index_of(of_b, label)
    contracted = contracted or (shared and not kept[label])
    if shared and kept[label] then both[#both + 1] = label end
    if not shared then only_a[#only_a + 1] = label end
  end
  for _, label in ipairs(of_b) do
    if not index_of(of_a, label) then only_b[#only_b + 1] = label end
  end
  local order = {}
  for _, list in ipairs { both, only_a, only_b } do table.move(list, 1, #list, #order + 1, order) end
  if contracted and is_float[core.dtype(a)] and core.dtype(a) == core.dtype(b) then
    local attrs = { batch_a = {}, batch_b = {}, contract_a = {}, contract_b = {} }
    for i, label in ipairs(of_a) do
      local at = index_of(of_b, label)
      local kind = kept[label] and "batch" or "contract"
      if at then
        table.insert(attrs[kind .. "_a"], i - 1)
        table.insert(attrs[kind .. "_b"], at - 1)
      end
    end
    return emit("dot", { a, b }, attrs), order
  end
  local all = table.move(order, 1, #order, 1, {})
  for _, label in ipairs(of_a) do
    if not index_of(all, label) then all[#all + 1] = label end
  end
  return sum_out(emit("mul", { aligned(a, of_a, all), aligned(b, of_b, all) }), all, kept)
end

--- Letters that occur once, in alphabetical order, after the dimensions of "...".
local function implied(terms, dots)
  local seen, letters, result = {}, {}, {}
  for _, term in ipairs(terms) do
    for _, label in ipairs(term) do seen[label] = (seen[label] or 0) + 1 end
  end
  for label, count in pairs(seen) do
    if count == 1 and label ~= "..." then letters[#letters + 1] = label end
  end
  table.sort(letters)
  for i = dots, 1, -1 do result[#result + 1] = ".." .. i end
  return table.move(letters, 1, #letters, #result + 1, result)
end

--- Which labels must be there after term `number` is taken in: those of the result and of the terms to come.
local function still_needed(result, terms, number)
  local kept = {}
  for _, label in ipairs(result) do kept[label] = true end
  for i = number + 1, #terms do
    for _, label in ipairs(terms[i]) do kept[label] = true end
  end
  return kept
end

local function check_result(equation, result, extents)
  local seen = {}
  for _, label in ipairs(result) do
    if seen[label] then refuse(equation, "label %s stands twice in the result", label) end
    if not extents[label] then refuse(equation, "label %s of the result is in no term", label) end
    seen[label] = true
  end
end

--- A list in which "..." is spelled out for as many dimensions as any term has there.
local function spell_result(labels, dots)
  local spelled = {}
  for _, label in ipairs(labels) do
    if label ~= "..." then spelled[#spelled + 1] = label end
    for i = label == "..." and dots or 0, 1, -1 do spelled[#spelled + 1] = ".." .. i end
  end
  return spelled
end

--- Labels of each tensor, extents by label, and the most dimensions that a "..." stands for.
local function read_tensors(equation, terms, tensors)
  local labels, extents, dots = {}, {}, 0
  for i, x in ipairs(tensors) do
    if not core.is_tensor(x) then refuse(equation, "argument %d is no tensor", i) end
    local hidden
    labels[i], hidden = spell_out(equation, terms[i], x, i)
    dots = math.max(dots, hidden)
    for at, label in ipairs(labels[i]) do
      local known = extents[label]
      if not known or (known == 1 and label:sub(1, 2) == "..") then extents[label] = core.dims(x)[at] end
    end
  end
  return labels, extents, dots
end

--- The sum of products that the equation describes.
---@param equation string as NumPy's: "ij,jk->ik", "...i,i", "ii->i"
---@param ... sgl.tensor one for each term
---@return sgl.tensor
local function einsum(equation, ...)
  local tensors = { ... }
  local terms, wanted = read_equation(equation)
  if #terms ~= #tensors then refuse(equation, "%d terms and %d tensors", #terms, #tensors) end
  local labels, extents, dots = read_tensors(equation, terms, tensors)
  local result = wanted and spell_result(wanted, dots) or implied(terms, dots)
  check_result(equation, result, extents)
  for i, x in ipairs(tensors) do
    x, labels[i] = take_diagonal(equation, x, labels[i])
    tensors[i], labels[i] = agree(equation, x, labels[i], extents, i)
  end
  local made, of_made
  for i, x in ipairs(tensors) do
    local kept = still_needed(result, labels, i)
    local shared = still_needed(of_made or {}, {}, 0)
    for label in pairs(kept) do shared[label] = true end
    local left
    x, left = sum_out(x, labels[i], shared)
    if i == 1 then
      made, of_made = x, left
    else
      made, of_made = multiply(made, of_made, x, left, kept)
    end
  end
  return transpose(made, of_made, result)
end

return einsum
