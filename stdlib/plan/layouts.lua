--- Which dimension of each parameter is split over which axis of a mesh, as the core's field `layouts` says it.
--- Comes in: a plan, a model's parameters. Goes out: a text "blocks.*.attn.wq tp:0, ...", "" where nothing is split.
--- Over tp and ep a parameter is split as its layer says (nn.parameter { ..., tp = 0 }); over fsdp along the first
--- dimension that these and `params` leave, its states (zero = 1 or 2) or it too (zero = 3). `params` of the plan says
--- otherwise by pattern.

local core = require "sgl.core"
local names_of = require "sgl.names"

local layouts = { axes = { "dp", "fsdp", "tp", "pp", "ep", "cp" } } -- of a mesh, in the core's order

local function is_axis(name)
  for _, axis in ipairs(layouts.axes) do
    if axis == name then return true end
  end
  return false
end

-- The name with "*" for each number in it: the blocks of a stack are alike.
local function pattern_of(path)
  return (("." .. path .. "."):gsub("%.%d+%f[.]", ".*"):sub(2, -2))
end

-- As the core matches names: a "*" is any characters, dots too.
local function fits(pattern, path)
  return path:find("^" .. pattern:gsub("[^%w*]", "%%%0"):gsub("%*", ".*") .. "$") ~= nil
end

-- Entries of one kind: by pattern where all that it fits are split alike, else by name.
local function collect(parameters, dim_of, form)
  local alike, told, entries = {}, {}, {}
  for _, parameter in ipairs(parameters) do
    local pattern, dim = pattern_of(parameter.path), dim_of(parameter)
    if dim and alike[pattern] == nil then
      alike[pattern] = true
      for _, other in ipairs(parameters) do
        if dim_of(other) ~= dim and fits(pattern, other.path) then alike[pattern] = false end
      end
    end
    local name = alike[pattern] and pattern or parameter.path
    if dim and not told[name] then
      told[name] = true
      entries[#entries + 1] = form:format(name, dim)
    end
  end
  return entries
end

local function hint(axis)
  return function(parameter) return parameter[axis] end
end

-- Over fsdp: the first dimension that neither `params` nor a layer has given to another axis of this mesh: two axes
-- along one cost an exchange of the whole gradient.
local function shard_dim(mesh, params)
  local patterns = names_of.sorted(params)
  return function(parameter)
    local taken = {}
    for _, axis in ipairs(layouts.axes) do
      local dim = parameter[axis]
      for _, pattern in ipairs(patterns) do
        if params[pattern][axis] ~= nil and fits(pattern, parameter.path) then dim = params[pattern][axis] end
      end
      if dim and axis ~= "fsdp" and (mesh[axis] or 1) > 1 then taken[math.tointeger(dim)] = true end
    end
    for dim = 0, #parameter.dims - 1 do
      if not taken[dim] then return dim end
    end
  end
end

local function own_entries(params)
  local entries = {}
  for _, pattern in ipairs(names_of.sorted(params)) do
    local splits = {}
    for axis, dim in pairs(params[pattern]) do
      splits[#splits + 1] = ("%s:%s"):format(axis, dim == false and "-" or math.tointeger(dim))
    end
    table.sort(splits)
    if #splits > 0 then entries[#entries + 1] = pattern .. " " .. table.concat(splits, " ") end
  end
  return entries
end

--- Refuses what a field by patterns, `params` or `activations`, cannot be.
---@param field string
---@param params table<string, table<string, integer|false>>
function layouts.check(field, params)
  if type(params) ~= "table" then
    core.error(("plan: %s must be a table by patterns of names, such as { [\"*.wq\"] = { tp = 0 } }"):format(field))
  end
  for pattern, splits in pairs(params) do
    if type(pattern) ~= "string" or pattern == "" or pattern:find "[ ,]" then
      core.error(("plan: %s: its keys are patterns of names such as \"*.wq\", not '%s'"):format(field,
        tostring(pattern)))
    end
    if type(splits) ~= "table" then
      core.error(("plan: %s['%s'] must be a table of axes, such as { tp = 0 }"):format(field, pattern))
    end
    for axis, dim in pairs(splits) do
      if not is_axis(axis) then
        core.error(("plan: %s['%s']: there is no mesh axis '%s'%s"):format(field, pattern, tostring(axis),
          names_of.hint(axis, layouts.axes)))
      end
      local number = math.tointeger(dim)
      if dim ~= false and not (number and number >= 0 and number < 8) then
        core.error(("plan: %s['%s'].%s must be a dimension, from 0, or false, not %s"):format(field, pattern, axis,
          tostring(dim)))
      end
    end
  end
end

local rows = { dp = true, fsdp = true, ep = true } -- what has no such dimension is whole over these

-- Of the last pattern that says something of this axis: so the core reads it.
local function check_dim(plan, parameter, axis, patterns)
  local by
  for _, pattern in ipairs(patterns) do
    if plan.params[pattern][axis] ~= nil and fits(pattern, parameter.path) then by = pattern end
  end
  local dim = by and plan.params[by][axis]
  if dim and not rows[axis] and dim >= #parameter.dims then
    local what = "plan: params['%s']: dimension %d of parameter '%s' {%s} over %s=%d, and it has %d, counted from 0"
    core.error(what:format(by, math.tointeger(dim), parameter.path, table.concat(parameter.dims, ", "), axis,
      plan.mesh[axis] or 1, #parameter.dims), plan.here)
  end
end

--- Refuses `params` of a mesh of several ranks whose patterns name nothing, or a dimension that is not there.
---@param plan table
---@param parameters sgl.parameter[]
---@param buffers sgl.parameter[]?
function layouts.check_named(plan, parameters, buffers)
  local ranks, patterns, all = 1, names_of.sorted(plan.params or {}), {}
  for _, axis in ipairs(layouts.axes) do ranks = ranks * (plan.mesh[axis] or 1) end
  if ranks == 1 then return end
  for _, parameter in ipairs(parameters) do all[#all + 1] = parameter.path end
  for _, buffer in ipairs(buffers or {}) do all[#all + 1] = buffer.path end
  for _, pattern in ipairs(patterns) do
    local named = false
    for _, path in ipairs(all) do named = named or fits(pattern, path) end
    if not named then
      core.error(("plan: params: '%s' names no parameter%s"):format(pattern, core.hint(pattern, all)), plan.here)
    end
  end
  for _, parameter in ipairs(#patterns > 0 and parameters or {}) do
    for _, axis in ipairs(layouts.axes) do check_dim(plan, parameter, axis, patterns) end
  end
end

--- The entries of a field by patterns, as the core's fields say them.
---@param params table<string, table<string, integer|false>>
---@return string
function layouts.own(params) return table.concat(own_entries(params), ", ") end

---@param plan table
---@param parameters sgl.parameter[] with their paths
---@return string
function layouts.text(plan, parameters)
  local mesh, entries = plan.mesh, {}
  local function add(list) table.move(list, 1, #list, #entries + 1, entries) end
  for _, axis in ipairs { "tp", "ep" } do
    if (mesh[axis] or 1) > 1 then add(collect(parameters, hint(axis), "%s " .. axis .. ":%d")) end
  end
  if (mesh.fsdp or 1) > 1 and plan.zero > 0 then
    local form = plan.zero == 3 and "%s fsdp:%d" or "states %s fsdp:%d"
    add(collect(parameters, shard_dim(mesh, plan.params or {}), form))
  end
  if plan.params then add(own_entries(plan.params)) end
  return table.concat(entries, ", ")
end

return layouts
