-- xml.lua -- is a file well-formed XML? Elements nested and closed, attributes quoted and not twice, no bare '<'
-- or '&'. In: a file; optionally the name of an element. Out: how many of these elements there are, status 0; or
-- what is wrong, 1.

local path, counted = arg[1], arg[2]
local text = assert(io.open(path, "rb")):read "a"
local at, open, count, roots = 1, {}, 0, 0

local function refuse(what)
  local _, lines = text:sub(1, at):gsub("\n", "")
  io.stderr:write(("%s:%d: %s\n"):format(path, lines + 1, what))
  os.exit(1)
end

local function check_text(part)
  if part:find("&", 1, true) and part:gsub("&[%a#][%w]*;", ""):find("&", 1, true) then refuse "a bare '&'" end
  if #open == 0 and part:find "%S" then refuse "text outside of the root" end
end

while at <= #text do
  local start = text:find("<", at, true)
  check_text(text:sub(at, (start or #text + 1) - 1))
  if not start then break end
  at = start
  local closing, name, rest, stop = text:match("^<(/?)([%a_][%w_:.-]*)([^<>]*)>()", at)
  if not name then refuse "no tag" end
  if closing == "/" then
    if table.remove(open) ~= name then refuse("</" .. name .. "> closes something else") end
  else
    if #open == 0 then roots = roots + 1 end
    if name == counted then count = count + 1 end
    local seen = {}
    local left = rest:gsub('%s+([%a_][%w_:.-]*)="([^"<]*)"', function(key, value)
      if seen[key] then refuse(key .. " stands there twice") end
      seen[key] = true
      if value:gsub("&[%a#][%w]*;", ""):find("&", 1, true) then refuse "a bare '&' in an attribute" end
      return ""
    end)
    if not left:find "^%s*/?$" then refuse("what is " .. left .. "?") end
    if not left:find "/" then open[#open + 1] = name end
  end
  at = stop
end
if #open > 0 then refuse("<" .. open[#open] .. "> is not closed") end
if roots ~= 1 then refuse(roots .. " roots") end
print(count)
