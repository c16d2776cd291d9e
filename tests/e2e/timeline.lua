-- timeline.lua FILE TRACKS: holds a file of `sgl profile --timeline` to what Perfetto reads: JSON, slices that have a
-- name, a begin and a length, as many tracks of slices as said, slices of a track one behind another. No JSON library
-- is at hand: the file has an event a line.
-- In: the file. Out: status 1 and a message where it is not so.

local path, tracks = arg[1], tonumber(arg[2])
local count, slices = 0, 0
local first, last
local starts = {}
for line in io.lines(path) do
  first, last = first or line, line
  if line:find('"ph":"X"', 1, true) then
    local name, tid = line:match '"name":"([^"]+)"', line:match '"tid":(%d+)'
    local ts, dur = tonumber(line:match '"ts":([%d.]+)'), tonumber(line:match '"dur":([%d.]+)')
    assert(name and tid and ts and dur, "no slice: " .. line)
    starts[tid] = starts[tid] or {}
    starts[tid][#starts[tid] + 1] = { ts, ts + dur }
    slices = slices + 1
  end
end
for tid, list in pairs(starts) do
  table.sort(list, function(a, b) return a[1] < b[1] end)
  for i = 2, #list do
    assert(list[i][1] >= list[i - 1][2] - 0.01, ("track %s: a slice begins at %g, before %g"):format(tid, list[i][1],
      list[i - 1][2]))
  end
  count = count + 1
end
assert(first == '{"displayTimeUnit":"ms","traceEvents":[', "it begins with " .. tostring(first))
assert(last:find '"left out":0}}$', "it ends with " .. tostring(last))
assert(slices > 20, slices .. " slices")
assert(count >= tracks, count .. " tracks have slices")
