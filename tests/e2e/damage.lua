-- damage.lua -- makes a good file bad, in one way at a time, so that a test can see what is said of it.
-- In: `flip FILE OFFSET` turns one bit (an offset below 0 counts from the end), `entry FILE NAME` one of that tensor of
-- a safetensors file; `last FILE` names the one whose data end that file; `cut FILE BYTES` leaves that many;
-- `rename FILE OLD NEW` puts NEW in place of OLD, a text of the same length; `header FILE OLD NEW` does so in a
-- safetensors header, whose length may change; `u16|u32|llmc FILE COUNT [AT VALUE]` writes a file of COUNT tokens, one
-- of which has VALUE. Out: the file, changed.

local function read(path)
  local file = assert(io.open(path, "rb"))
  local data = file:read "a"
  file:close()
  return data
end

local function write(path, data)
  local file = assert(io.open(path, "wb"))
  assert(file:write(data))
  assert(file:close())
end

local function replace(data, old, new)
  local first, last = data:find(old, 1, true)
  assert(first, "the file does not hold " .. old)
  return data:sub(1, first - 1) .. new .. data:sub(last + 1)
end

local function tokens(count, at, value, format)
  local list = {}
  for i = 0, count - 1 do list[#list + 1] = string.pack(format, i == at and value or (i * i + 3 * i) % 97) end
  return table.concat(list)
end

local ways = {}

function ways.flip(path, offset)
  local data = read(path)
  offset = math.tointeger(offset)
  if offset < 0 then offset = #data + offset end
  assert(offset < #data, "there is no such byte")
  write(path, data:sub(1, offset) .. string.char(data:byte(offset + 1) ~ 16) .. data:sub(offset + 2))
end

function ways.entry(path, name)
  local data = read(path)
  local length = string.unpack("<I8", data)
  local _, at = data:find('"' .. name .. '"', 1, true)
  assert(at and at < 8 + length, "the file does not hold " .. name)
  ways.flip(path, 8 + length + data:match('"data_offsets"%s*:%s*%[%s*(%d+)', at))
end

function ways.last(path)
  local data = read(path)
  local length = string.unpack("<I8", data)
  local ends, last = -1, nil
  for name, stop in data:sub(9, 8 + length):gmatch '"([^"]+)"%s*:%s*{[^{}]-"data_offsets"%s*:%s*%[%s*%d+%s*,%s*(%d+)' do
    if tonumber(stop) > ends then ends, last = tonumber(stop), name end
  end
  assert(last, "there is no tensor")
  print(last)
end

function ways.cut(path, bytes)
  local data = read(path)
  assert(math.tointeger(bytes) < #data, "it is shorter already")
  write(path, data:sub(1, math.tointeger(bytes)))
end

function ways.rename(path, old, new)
  assert(#old == #new, "of another length")
  write(path, replace(read(path), old, new))
end

function ways.header(path, old, new)
  local data = read(path)
  local length = string.unpack("<I8", data)
  local header = replace(data:sub(9, 8 + length), old, new)
  write(path, string.pack("<I8", #header) .. header .. data:sub(9 + length))
end

function ways.u16(path, count, at, value)
  write(path, tokens(count, math.tointeger(at), math.tointeger(value), "<I2"))
end

function ways.u32(path, count, at, value)
  write(path, tokens(count, math.tointeger(at), math.tointeger(value), "<I4"))
end

function ways.llmc(path, count, at, value)
  local header = string.pack("<i4i4i4", 20240520, 1, count) .. ("\0"):rep(253 * 4)
  write(path, header .. tokens(count, math.tointeger(at), math.tointeger(value), "<I2"))
end

ways[arg[1]](table.unpack(arg, 2))
