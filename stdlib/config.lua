--- sgl.config: the fields of a script that `--set key=value` may change.
--- Comes in: a table of defaults. Goes out: the table with the settings applied, each converted to the type of its
--- default.
--- A field that is read but was never declared is an error, so that a misspelt field is not silently nil.

local core = require "sgl.core"
local names_of = require "sgl.names"

local function quoted(text) return "'" .. tostring(text) .. "'" end

local function convert(key, default, text)
  local kind = math.type(default) or type(default)
  if kind == "integer" then
    local value = math.tointeger(tonumber(text))
    if value then return value end
  elseif kind == "float" then
    local value = tonumber(text)
    if value and value - value == 0 then return value + 0.0 end -- not 1e999, which is infinite
  elseif kind == "boolean" then
    local value = ({ ["true"] = true, ["1"] = true, ["false"] = false, ["0"] = false })[text]
    if value ~= nil then return value end
  else
    return text
  end
  local wanted = ({ integer = "an integer", float = "a finite number", boolean = "true or false" })[kind]
  core.error(("config: %s must be %s (its default is %s), not %s"):format(key, wanted, tostring(default), quoted(text)))
end

local names = { integer = "integer", float = "number", string = "string", boolean = "boolean" }

---@generic T: table
---@param defaults T each field a number, string or boolean
---@return T
return function(defaults)
  if type(defaults) ~= "table" then core.error("config: give a table of fields with their defaults") end
  local settings, fields, keys = core.settings(), {}, {}
  for key in pairs(defaults) do
    if type(key) ~= "string" then core.error("config: every field needs a name; found " .. tostring(key)) end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local value = defaults[key]
    local kind = math.type(value) or type(value)
    if not names[kind] then
      core.error(("config: %s is a %s; a field is a number, string or boolean"):format(key, kind))
    end
    if settings[key] ~= nil then value = convert(key, value, settings[key]) end
    fields[key] = value
    core.declare(key, names[kind], tostring(value))
  end
  return setmetatable(fields, {
    __index = function(_, key)
      core.error(("config: there is no field '%s'%s"):format(tostring(key), names_of.hint(key, keys)))
    end,
    __tostring = function()
      local parts = {}
      for _, key in ipairs(keys) do parts[#parts + 1] = key .. "=" .. tostring(fields[key]) end
      return "config{" .. table.concat(parts, ", ") .. "}"
    end,
  })
end
