--- calls: a list of calls, of whatever the library has, as bytes choose; fuzz_lua.c writes `bytes` before this text.
--- A call is of a library function, of a value that earlier calls gave, or of an operator, with up to three arguments
--- among numbers, texts, tables, functions, tensors and earlier results. It may raise what it likes.
--- Bounds are small, so that a run takes milliseconds.

local core = require "sgl.core"
local sgl = require "sgl"

local words = {
  "dim", "heads", "vocab", "layers", "dtype", "axis", "axes", "keep", "to", "f32", "i32", "bool", "x", "", "lr", "eps",
  "size", "start", "stop", "seq", "batch", "path", "loss", "model", "optim", "init", "length", "limit", "condition",
  "body", "bf16", "kv_heads", "causal", "experts", "top_k", "out", "kernel", "stride", "groups", "hidden", "f8e4m3",
  "reverse",
}
local odd = { true, false, 1e300, -1, 0 / 0, math.maxinteger, math.mininteger }
local shapes = { { 2, 3 }, { 3 }, { 2 }, {}, { 0, 3 } }
local dtypes = { "f32", "f32", "i32", "f64", "bf16" }

--- Every function under `value`, by path. What a library loads when it is first used stands in its metatable's names.
local function collect(found, seen, path, value)
  if type(value) == "function" then
    found[#found + 1] = { path = path, call = value }
  elseif type(value) == "table" and not seen[value] then
    seen[value] = true
    local meta, keys = getmetatable(value), {}
    for _, key in ipairs(type(meta) == "table" and meta.names or {}) do keys[key] = true end
    for key in pairs(value) do if type(key) == "string" then keys[key] = true end end
    for key in pairs(keys) do collect(found, seen, path .. "." .. key, value[key]) end
  end
end

local functions = {}
collect(functions, {}, "sgl", sgl)
table.sort(functions, function(a, b) return a.path < b.path end)
assert(#functions > 200, "calls: most of the library is not reached")

local operators = {
  function(a, b) return a + b end, function(a, b) return a * b end, function(a, b) return a / b end,
  function(a, b) return a - b end, function(a, b) return a // b end, function(a, b) return a % b end,
  function(a, b) return a ^ b end, function(a) return -a end, function(a, b) return a < b end,
  function(a, b) return a[b] end, function(a) return #a end, function(a, b) return a .. b end,
  function(a) return tostring(a) end, function(a, b, c) a[b] = c end, function(a, b) return a == b end,
  function(a, b, c) return a(b, c) end,
}

local at = 0
local function byte()
  at = at + 1
  return bytes:byte(at) or 0
end

local pool = {} -- tensors, and what calls gave

local argument
local function list(depth)
  local values = {}
  for i = 1, byte() % 4 do values[i] = argument(depth + 1) end
  return values
end

local function fields(depth)
  local values = {}
  for _ = 1, byte() % 5 do values[words[byte() % #words + 1]] = argument(depth + 1) end
  return values
end

function argument(depth)
  local kind = byte() % 12
  if kind < 4 and #pool > 0 then return pool[byte() % #pool + 1] end
  if kind == 4 then return byte() - 8 end
  if kind == 5 then return (byte() - 128) / 7 end
  if kind == 6 then return words[byte() % #words + 1] end
  if kind == 7 then return odd[byte() % #odd + 1] end
  if kind == 8 and depth < 3 then return list(depth) end
  if kind == 9 and depth < 3 then return fields(depth) end
  if kind == 10 then
    local n = byte()
    return function(...) return n % 2 == 0 and (...) or pool[n % (#pool + 1)] end
  end
  return nil
end

local function callee()
  local kind = byte() % 8
  if kind == 0 then return operators[byte() % #operators + 1] end
  if kind == 1 and #pool > 0 then return pool[byte() % #pool + 1] end
  return functions[(byte() + 256 * byte()) % #functions + 1].call
end

local function run()
  for i, dims in ipairs(shapes) do pool[i] = core.input("parameter", "p" .. i, dtypes[i], dims) end
  while at < #bytes do
    local results = table.pack(pcall(callee(), argument(0), argument(0), argument(0)))
    for i = 2, math.min(results.n, 4) do
      if results[1] and results[i] ~= nil then pool[#pool + 1] = results[i] end
    end
    if #pool > 64 then pool[1] = table.remove(pool) end
  end
end

pcall(core.trace, "calls", run)
return core.job {}
