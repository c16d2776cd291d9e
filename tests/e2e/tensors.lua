-- tensors.lua -- what safetensors files hold, whatever the order: lua5.4 tensors.lua FILE... prints a line for each
-- tensor, sorted by name: its dtype and shape as the header has them, and its bytes as a sum.
-- Comes in: files that the command has written (their headers are JSON of one known form). Goes out: text to compare.

local function sum_of(bytes) -- FNV-1a, 64 bits
  local hash = 0xcbf29ce484222325
  for i = 1, #bytes do hash = (hash ~ bytes:byte(i)) * 0x100000001b3 end
  return ("%016x"):format(hash)
end

local lines = {}
for _, path in ipairs(arg) do
  local file <close> = assert(io.open(path, "rb"))
  local length = string.unpack("<I8", file:read(8))
  local header, data = file:read(length), file:read "a"
  for name, tensor in header:gmatch '"([^"]+)":(%b{})' do
    local first, last = tensor:match '"data_offsets":%[(%d+),(%d+)%]'
    if first then
      lines[#lines + 1] = ("%s %s %s"):format(name, tensor:gsub('"data_offsets":%b[]', ""),
        sum_of(data:sub(tonumber(first) + 1, tonumber(last))))
    end
  end
end
assert(#lines > 0, "no tensors")
table.sort(lines)
print(table.concat(lines, "\n"))
