--- paths: patterns of parameter paths, such as "blocks.*.attn.*": a '*' stands for any characters, dots too.
--- Comes in: what an option gives, a table { pattern = value } or a list of patterns, and the parameters. Goes out: the
--- value of each parameter. Of several patterns that match a path the one with the most characters besides '*' holds.
--- Odd invariant: a pattern that matches no parameter is an error, for it is nearly always a misspelling.

local check = require "sgl.check"
local core = require "sgl.core"
local names_of = require "sgl.names"

local paths = {}

local function matches(pattern, path)
  local wanted = pattern:gsub("[^%w_*]", "%%%0"):gsub("%*", ".*")
  return path:match("^" .. wanted .. "$") ~= nil
end

-- The length without its stars: the more, the closer a pattern describes a path.
local function closeness(pattern) return #pattern:gsub("%*", "") end

--- An option must be a table by patterns whose values are of the kind.
---@param where string the constructor
---@param option string
---@param value any
---@param kind string of `check`
function paths.check(where, option, value, kind)
  if type(value) ~= "table" then
    core.error(("%s: %s must be a table such as { [\"embed.*\"] = 0.1 }, not %s"):format(where, option,
      check.show(value)))
  end
  for pattern, of_pattern in pairs(value) do
    if type(pattern) ~= "string" then
      core.error(("%s: %s: its keys must be patterns of paths such as \"embed.*\", not %s"):format(where, option,
        check.show(pattern)))
    end
    check.value(where, ("%s['%s']"):format(option, pattern), kind, of_pattern)
  end
end

--- The same from a pattern or a list of patterns: { pattern = true }.
---@param where string the constructor
---@param option string
---@param value any
---@return table<string, boolean>
function paths.set(where, option, value)
  local set = {}
  for key, pattern in pairs(type(value) == "table" and value or { value }) do
    if math.type(key) ~= "integer" or type(pattern) ~= "string" then
      core.error(("%s: %s must be a pattern such as \"embed.*\" or a list of these, not %s"):format(where, option,
        check.show(math.type(key) == "integer" and pattern or key)))
    end
    set[pattern] = true
  end
  return set
end

local function unmatched(where, option, pattern, parameters, here)
  local known = {}
  for i, parameter in ipairs(parameters) do known[i] = parameter.path end
  core.error(("%s: %s: no parameter's path matches '%s'%s"):format(where, option, pattern,
    names_of.hint(pattern, known)), here)
end

--- What the patterns say of each parameter, as a function of the parameter that gives nil where none matches.
---@param where string the constructor
---@param option string
---@param by_pattern table<string, any>
---@param parameters sgl.parameter[] with their paths
---@param here string? the script's line
---@return fun(parameter: sgl.parameter): any
function paths.read(where, option, by_pattern, parameters, here)
  local values, chosen, order = {}, {}, {}
  for pattern in pairs(by_pattern) do order[#order + 1] = pattern end
  table.sort(order)
  for _, pattern in ipairs(order) do
    local found = false
    for _, parameter in ipairs(parameters) do
      if matches(pattern, parameter.path) then
        local other = chosen[parameter]
        found = true
        if other and closeness(other) == closeness(pattern) then
          core.error(("%s: %s: both '%s' and '%s' match '%s'"):format(where, option, other, pattern,
            parameter.path), here)
        end
        if not other or closeness(other) < closeness(pattern) then
          values[parameter], chosen[parameter] = by_pattern[pattern], pattern
        end
      end
    end
    if not found then unmatched(where, option, pattern, parameters, here) end
  end
  return function(parameter) return values[parameter] end
end

return paths
