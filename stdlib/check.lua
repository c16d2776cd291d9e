--- check: what a constructor of the library demands of its arguments.
--- Comes in: the name of the constructor, and values with the kind that each must be of. Goes out: an error at the
--- script's line that names the option, what it must be and what it is; or nothing.
--- Invariant: NaN is of no kind, for every test is one that it fails.

local core = require "sgl.core"
local names_of = require "sgl.names"

local check = {}

local kinds = {
  size = { "an integer of at least 1", function(v) return math.type(v) == "integer" and v >= 1 end },
  count = { "an integer of at least 0", function(v) return math.type(v) == "integer" and v >= 0 end },
  integer = { "an integer", function(v) return math.type(v) == "integer" end },
  finite = { "a finite number", function(v) return type(v) == "number" and v > -math.huge and v < math.huge end },
  rate = { "a finite number of at least 0", function(v) return type(v) == "number" and v >= 0 and v < math.huge end },
  positive = { "a finite number above 0", function(v) return type(v) == "number" and v > 0 and v < math.huge end },
  share = { "a number of at least 0 and below 1", function(v) return type(v) == "number" and v >= 0 and v < 1 end },
  flag = { "true or false", function(v) return type(v) == "boolean" end },
  text = { "a string", function(v) return type(v) == "string" end },
  call = { "a function", function(v) return type(v) == "function" end },
  table = { "a table", function(v) return type(v) == "table" end },
  any = { "given", function(v) return v ~= nil end },
}

--- A value as messages show it.
---@param value any
---@return string
function check.show(value)
  if value ~= value then return "nan" end
  if type(value) == "table" and getmetatable(value) == nil then return "a table" end
  return type(value) == "string" and "'" .. value .. "'" or tostring(value):match "^[^\n]*" -- a module has a tree below
end

--- The value must be of the kind.
---@param where string the constructor
---@param name string of the argument
---@param kind string a key of `kinds`
---@param value any
function check.value(where, name, kind, value)
  local wanted, holds = table.unpack(kinds[kind])
  if holds(value) then return end
  local whole = math.type(value) == "float" and math.tointeger(value) and wanted:find "^an integer"
  core.error(("%s: %s must be %s, not %s%s"):format(where, name, wanted, check.show(value),
    whole and " (a / b is never an integer, a // b is)" or ""))
end

--- Every option must be known and of its kind: { dim = "size", kv_heads = "size?" }, where '?' says that it may be left
--- out. What is known to nobody is an error that names the nearest.
---@param where string the constructor
---@param options table?
---@param fields table<string, string>
---@return table options an empty one when there was none
function check.options(where, options, fields)
  if options == nil then options = {} end
  if type(options) ~= "table" then
    core.error(("%s: give a table of options, not %s"):format(where, check.show(options)))
  end
  local names = {}
  for name in pairs(fields) do names[#names + 1] = name end
  table.sort(names)
  for key in pairs(options) do
    if fields[key] == nil then
      core.error(("%s: there is no option '%s'%s"):format(where, tostring(key), names_of.hint(key, names)))
    end
  end
  for _, name in ipairs(names) do
    local kind, optional = fields[name]:match "^(%a+)(%??)$"
    local value = rawget(options, name)
    if value ~= nil or optional == "" then check.value(where, name, kind, value) end
  end
  return options
end

--- The known fields in a table of their own: sgl.config may hold others besides, a table written for this one may not.
---@param where string the constructor
---@param given table
---@param fields table<string, string>
---@return table
function check.fields(where, given, fields)
  check.value(where, "the configuration", "table", given)
  if getmetatable(given) == nil then return check.options(where, given, fields) end
  local own = {}
  for name in pairs(fields) do own[name] = rawget(given, name) end
  return check.options(where, own, fields)
end

return check
