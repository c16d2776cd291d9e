-- optimizers_compare.lua -- holds the log of a run against one kind of optimizers.json: every number of every step
-- within 1e-9. In: FILE.json KIND LOG. Out: status 0 and the largest relative distance, or the first number that is
-- further off.
local golden, kind, log = arg[1], arg[2], arg[3]

local row
for line in io.lines(golden) do row = row or line:match('^"' .. kind .. '": ({.*})') end
assert(row, "there is no " .. kind)
local wanted = {}
for name, list in row:gmatch '"([%w_]+)": %[([^%]]*)%]' do
  wanted[name] = {}
  for number in list:gmatch "[^, ]+" do table.insert(wanted[name], tonumber(number)) end
end

local worst, compared = 0, 0
for line in io.lines(log) do
  local step = math.tointeger(line:match '"step":(%d+)')
  for name, list in pairs(wanted) do
    local text = line:match('"' .. name .. '":([^,}]*)')
    if text then
      local distance = math.abs(tonumber(text) - list[step]) / math.abs(list[step])
      worst, compared = math.max(worst, distance), compared + 1
      if not (distance <= 1e-9) then
        io.stderr:write(("%s: step %d: %s is %s, by PyTorch %.17g\n"):format(kind, step, name, text, list[step]))
        os.exit(1)
      end
    end
  end
end
assert(compared == 80, "numbers are missing: " .. compared .. " of 80")
print(("%s: %.1e"):format(kind, worst))
