-- annotations.lua -- holds the LuaCATS annotations of the library against its functions. In: the folder stdlib. The
-- library is loaded with a core that does nothing, so that its functions can be asked for their parameters. A function
-- is public where a module returns it, or has it in a table that it returns, or its objects have it as a method. Above
-- it must stand `---@param NAME` for each parameter, in order; ops have instead a line
-- `---@field NAME fun(PARAMETERS)` in tensor.lua.
-- Out: status 0 and a count, or the functions that fail and status 1.

local root = arg[1]
local wrong, counted = {}, 0

local function read(path)
  local file = io.open(path)
  if not file then return nil end
  local lines = {}
  for line in file:lines() do lines[#lines + 1] = line end
  file:close()
  return lines
end

---- the library over a core that does nothing ----

local core = setmetatable({
  settings = function() return {} end,
  error = function(message) error(message, 0) end,
  hint = function() return "" end,
  is_tensor = function() return false end,
  job = function(job) return job end,
}, { __index = function() return function() end end })
package.loaded["sgl.core"] = core
package.path = ""
table.insert(package.searchers, 2, function(name)
  local path = name == "sgl" and "sgl" or name:gsub("^sgl%.", ""):gsub("%.", "/")
  for _, file in ipairs { ("%s/%s.lua"):format(root, path), ("%s/%s/init.lua"):format(root, path) } do
    if read(file) then return assert(loadfile(file)) end
  end
  return "no such module"
end)

---- what stands above a function ----

local sources = {}
local function source(path)
  sources[path] = sources[path] or assert(read(path))
  return sources[path]
end

-- The names of ---@param in the comment above the line, or nil where there is no comment.
local function annotated(lines, at)
  local names = {}
  if not (lines[at - 1] or ""):find "^%s*%-%-%-" then return nil end
  local first = at
  while (lines[first - 1] or ""):find "^%s*%-%-%-" do first = first - 1 end
  for i = first, at - 1 do
    local name = lines[i]:match "^%s*%-%-%-@param ([%w_.]+)"
    if name then names[#names + 1] = name end
  end
  return table.concat(names, ", ")
end

-- The parameters of ---@field NAME fun(a: type, b: type?) in the file, or nil.
local function field(lines, name)
  for _, line in ipairs(lines) do
    local rest = line:match("^%s*%-%-%-@field " .. name:gsub("%p", "%%%0") .. " fun%((.*)$")
    if rest then
      local names, depth = {}, 0
      local text = "," .. rest
      local at = 1
      while at <= #text do
        local c = text:sub(at, at)
        if c == ")" and depth == 0 then break end
        if c:find "[%({<%[]" then depth = depth + 1 end
        if c:find "[%)}>%]]" then depth = depth - 1 end
        if c == "," and depth == 0 then names[#names + 1] = text:match("^%s*([%w_.]+)", at + 1) end
        at = at + 1
      end
      return table.concat(names, ", ")
    end
  end
end

local function parameters(fn, info)
  local names = {}
  for i = 1, info.nparams do names[i] = debug.getlocal(fn, i) end
  if names[1] == "self" then table.remove(names, 1) end
  if info.isvararg then names[#names + 1] = "..." end
  return table.concat(names, ", ")
end

local seen = {}
local function check(name, fn)
  local info = debug.getinfo(fn, "Su")
  if info.what == "C" or info.source:sub(1, 1) ~= "@" or not info.source:find(root, 1, true) then return end
  local key = info.source .. info.linedefined .. name
  if seen[key] then return end
  seen[key] = true
  counted = counted + 1
  local lines = source(info.source:sub(2))
  local real = parameters(fn, info)
  local of_tensor = rawget(require "sgl.ops", name) == fn
  local written
  if of_tensor then
    written = field(source(root .. "/tensor.lua"), name)
  else
    written = annotated(lines, info.linedefined)
  end
  written = written or (real ~= "" and "nothing" or "")
  if written ~= real then
    local what = "%s:%d: %s(%s) is annotated with (%s)"
    wrong[#wrong + 1] = what:format(info.source:sub(2), info.linedefined, name, real, written)
  end
end

local visited = {}
local function visit(name, value)
  if type(value) == "function" then return check(name, value) end
  if type(value) ~= "table" or visited[value] or value == core then return end
  visited[value] = true
  for key, member in next, value do
    if type(key) == "string" and not key:find "^__" then visit(key, member) end
  end
  local class = getmetatable(value)
  if type(class) == "table" and class.__index == class then visit(name, class) end
  if type(class) == "table" and type(class.__index) == "table" then visit(name, class.__index) end
end

---- all modules ----

local modules = {}
local function list(folder, prefix)
  for file in io.popen(("ls '%s'"):format(folder)):lines() do
    local name = file:match "^(.*)%.lua$"
    if not name then
      list(folder .. "/" .. file, prefix .. file .. ".")
    elseif name == "sgl" then
      modules[#modules + 1] = "sgl"
    else
      modules[#modules + 1] = name == "init" and prefix:sub(1, -2) or prefix .. name
    end
  end
end
list(root, "sgl.")
assert(#modules > 20, "the library is not there")
for _, name in ipairs(modules) do visit(name:match "[^.]+$", require(name)) end

-- Objects, for their methods.
local sgl = require "sgl"
local model = sgl.nn.linear(2, 2)
visit("module", getmetatable(model))
visit("parameter", getmetatable(model.weight))
visit("plan", getmetatable(sgl.plan()))
visit("optimizer", getmetatable(sgl.optim.sgd { lr = 1 }))

table.sort(wrong)
for _, line in ipairs(wrong) do io.stderr:write(line, "\n") end
assert(counted > 60, "too few functions were found: " .. counted)
print(counted .. " public functions")
os.exit(#wrong == 0)
