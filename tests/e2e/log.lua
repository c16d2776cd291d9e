-- log.lua -- reads the JSON lines that `sgl train --log` writes, strictly: one flat object a line, no key twice,
-- numbers as JSON has them. In: `get FILE KEY STEP` prints a number; `check FILE KEY...` demands the keys in every
-- line of a step and the steps to be 1, 2, 3 ... Out: status 0, or a message and status 1.

local function refuse(path, number, what)
  io.stderr:write(("%s:%d: %s\n"):format(path, number, what))
  os.exit(1)
end

local function parse(path, number, line)
  local object = {}
  local inside = line:match "^{(.*)}$" or refuse(path, number, "no JSON object on a line of its own")
  local at = 1
  while at <= #inside do
    local key, after = inside:match('^"([%w_.%-/]+)":()', at)
    if not key then refuse(path, number, "no key at column " .. at + 1) end
    local text, stop = inside:match("^(%-?%d[%d.eE+%-]*)()", after)
    local value = text and tonumber(text)
    if not value then
      value, stop = inside:match('^"([^"\\]*)"()', after)
    end
    if not value then refuse(path, number, "no value for " .. key) end
    if object[key] ~= nil then refuse(path, number, key .. " stands there twice") end
    object[key] = value
    at = stop
    if at <= #inside then
      if inside:sub(at, at) ~= "," then refuse(path, number, "no comma at column " .. at + 1) end
      at = at + 1
    end
  end
  return object
end

local function each(path)
  local number = 0
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  if text ~= "" and text:sub(-1) ~= "\n" then refuse(path, 0, "the last line is not whole") end
  local next_line = text:gmatch "([^\n]*)\n"
  return function()
    local line = next_line()
    number = number + 1
    if line then return number, parse(path, number, line) end
  end
end

local what, path = arg[1], arg[2]
if what == "get" then
  for _, object in each(path) do
    if object.step == math.tointeger(arg[4]) and object[arg[3]] ~= nil then
      print(string.format("%.17g", object[arg[3]]))
      os.exit(0)
    end
  end
  refuse(path, 0, ("no %s at step %s"):format(arg[3], arg[4]))
elseif what == "check" then
  local expected = 1
  for number, object in each(path) do
    if object.eval_loss == nil then
      if object.step ~= expected then refuse(path, number, ("step %s, not %d"):format(object.step, expected)) end
      expected = expected + 1
      for i = 3, #arg do
        if type(object[arg[i]]) ~= "number" then refuse(path, number, "no number " .. arg[i]) end
      end
    elseif object.step ~= expected - 1 then
      refuse(path, number, "an evaluation out of its place")
    end
  end
  if expected == 1 then refuse(path, 0, "no step") end
else
  refuse(path or "log.lua", 0, "unknown question " .. tostring(what))
end
