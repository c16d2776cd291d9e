--- sgl.dim: a dimension that is as long as the longest row of a batch: how long a sequence, a document, a signal is.
--- Comes in: a name and the extents that it may have, its buckets. Goes out: an object to stand among the dims of a
--- feed of data.batches. A graph is traced and frozen for each bucket when a batch first needs it; within one trace the
--- extent is a plain integer, that of the bucket. Shorter rows are padded, and the padding changes no number: a trace
--- in which it would is an error at the line of the op that lets it in (docs/dims.md).
--- Invariant: how long the rows of a batch are is a feed of the graph, dim.NAME i64 [rows], and the mask is made of it.

local check = require "sgl.check"
local core = require "sgl.core"
local names_of = require "sgl.names"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

---@class sgl.dim
---@field name string
---@field buckets integer[] increasing
---@field largest integer the last of them
local Dim = {}
Dim.__index = Dim

local dim = {}
local by_name = {}

-- Of `--set dim.NAME=128,512`, in place of those of the script.
local function of_setting(name)
  local text = core.settings()["dim." .. name]
  if not text then return nil end
  local list = {}
  for part in (text .. ","):gmatch "([^,]*)," do
    list[#list + 1] = math.tointeger(tonumber(part)) or part
  end
  return list
end

local function check_buckets(where, buckets)
  if type(buckets) ~= "table" or #buckets == 0 then
    core.error(where .. ": give the extents that it may have: buckets = { 128, 512, 4096 }")
  end
  for i, extent in ipairs(buckets) do
    check.value(where, ("bucket %d"):format(i), "size", extent)
    if i > 1 and extent <= buckets[i - 1] then
      core.error(("%s: buckets must increase, and %d comes behind %d"):format(where, extent, buckets[i - 1]))
    end
  end
end

--- A dimension whose extent is chosen for each batch among a few: the smallest that holds the longest row.
---@param name string
---@param options { buckets: integer[] }
---@return sgl.dim
function dim.new(name, options)
  check.value("dim", "the name", "text", name)
  if not name:find "^[%a_][%w_]*$" then
    core.error(("dim: '%s' is no name; letters, digits and _ make one"):format(name))
  end
  local where = ("dim '%s'"):format(name)
  check.options(where, options, { buckets = "any" })
  if by_name[name] then core.error(("dim: there is one with the name '%s' already"):format(name)) end
  check_buckets(where, options.buckets)
  local buckets = of_setting(name) or table.move(options.buckets, 1, #options.buckets, 1, {})
  check_buckets(where, buckets)
  local self = setmetatable({ name = name, buckets = buckets, largest = buckets[#buckets], here = core.here() }, Dim)
  by_name[name] = self
  return self
end

--- The names of all that the script has made.
---@return string[]
function dim.names() return names_of.sorted(by_name) end

---@param value any
---@return boolean
function dim.is(value) return getmetatable(value) == Dim end

function Dim:__tostring() return ("dim %s {%s}"):format(self.name, table.concat(self.buckets, ", ")) end

-- What the trace at hand knows of the dim: { dim, extent, rows, lengths, mask }.
local function traced(self)
  local entry = trace.context().dims[self.name]
  if entry then return entry end
  core.error(("dim '%s': no feed of this graph has it%s"):format(self.name,
    trace.context().generating and "; a text that is generated has no padding" or ""))
end

--- Its extent in the trace at hand: a bucket.
---@return integer
function Dim:extent() return traced(self).extent end

--- How long each row of the batch is: i64 [rows], or i64 [] where the dim is a feed's first dimension.
---@return sgl.tensor
function Dim:lengths() return traced(self).lengths end

--- Where the rows are, and padding is not: bool [rows, extent], or [extent].
---@return sgl.tensor
function Dim:mask() return traced(self).mask end

---- for the job ----

--- Feeds that have dims say in which order: rows first, or none. rows: how many (nil: one).
---@param feeds table<string, table>
---@param where string
---@return table<string, { dim: sgl.dim, rows: integer? }> by names of dims
function dim.of_feeds(feeds, where)
  local found = {}
  for _, name in ipairs(names_of.sorted(feeds)) do
    local feed = feeds[name]
    for i, extent in ipairs(feed.dims) do
      if dim.is(extent) then
        local had, rows = found[extent.name], i == 2 and feed.dims[1] or nil
        if feed.axis then core.error(("%s: feed '%s' has two dims; one is possible"):format(where, name)) end
        if i > 2 then
          local what = "%s: feed '%s': '%s' must be its first dimension, or its second, behind the rows"
          core.error(what:format(where, name, extent.name))
        end
        if had and had.rows ~= rows then
          core.error(("%s: feed '%s' has other rows along '%s' than feed '%s'"):format(where, name, extent.name,
            had.feed))
        end
        if feed.dtype == "i4" then
          core.error(("%s: feed '%s': elements of i4 cannot be padded"):format(where, name))
        end
        feed.axis, feed.dim = i - 1, extent
        found[extent.name] = had or { dim = extent, rows = rows, feed = name }
      end
    end
  end
  return found
end

--- The feed of lengths and the mask, for a trace of the extents.
---@param found table what of_feeds gave
---@param extents table<string, integer>
function dim.enter(found, extents)
  local entries = {}
  for _, name in ipairs(names_of.sorted(found)) do
    local one = found[name]
    local extent, rows = extents[name], one.rows
    local lengths = core.input("feed", "dim." .. name, "i64", { rows })
    local shape = rows and { rows, extent } or { extent }
    local places = ops.iota(shape, #shape - 1, "i64")
    local mask = ops.less(places, rows and ops.unsqueeze(lengths, 1) or lengths)
    core.padding(mask, name, #shape - 1, rows and 0 or -1, 0, true)
    entries[name] = { dim = one.dim, extent = extent, rows = rows, lengths = lengths, mask = mask }
  end
  trace.context().dims = entries
end

--- How long each row of a batch is along its dims, and that all feeds agree.
---@param found table what of_feeds gave
---@param feeds table<string, table>
---@param batch table<string, any>
---@param where string? the line of the data
---@return table<string, integer[]> lengths
function dim.measure(found, feeds, batch, where)
  local widths = { f64 = 8, i64 = 8, f32 = 4, i32 = 4, u32 = 4, bf16 = 2, f16 = 2, i16 = 2, u16 = 2 }
  local function long(row, feed, name, r)
    local inner = 1
    for i = feed.axis + 2, #feed.dims do inner = inner * feed.dims[i] end
    if type(row) ~= "table" and type(row) ~= "string" then
      core.error(("batch: row %d of '%s' is a %s; it must be a list of numbers"):format(r, name, type(row)), where)
    end
    local given = type(row) == "string" and #row // (widths[feed.dtype] or 1) or #row
    if given % inner ~= 0 then
      core.error(("batch: row %d of '%s' has %d elements, which are no multiple of %d"):format(r, name, given, inner),
        where)
    end
    return given // inner
  end
  local lengths, padded = {}, {}
  for name, feed in pairs(feeds) do
    if feed.dim and batch[name] ~= nil then padded[name] = feed end
  end
  for _, name in ipairs(names_of.sorted(padded)) do
    local feed, along = feeds[name], feeds[name].dim.name
    local rows = found[along].rows
    local list = rows and batch[name] or { batch[name] }
    if type(list) ~= "table" or #list ~= (rows or 1) then
      core.error(("batch: '%s' must be a list of %d rows, each as long as it is; it is %s"):format(name, rows or 1,
        type(list) == "table" and ("one of %d"):format(#list) or "a " .. type(list)), where)
    end
    local had = lengths[along]
    lengths[along] = had or {}
    for r, row in ipairs(list) do
      local length = long(row, feed, name, r)
      if length == 0 then
        core.error(("batch: row %d of '%s' is empty; a row has one entry at least"):format(r, name), where)
      end
      if had and had[r] ~= length then
        core.error(("batch: row %d of '%s' is %d long, but %d in another feed of '%s'"):format(r, name, length, had[r],
          along), where)
      end
      lengths[along][r] = length
    end
  end
  return lengths
end

--- The smallest bucket of each dim that holds its rows.
---@param found table what of_feeds gave
---@param lengths table<string, integer[]>
---@return table<string, integer> extents
function dim.choose(found, lengths)
  local extents = {}
  for name, one in pairs(found) do
    local longest, at = 0, 0
    for r, length in ipairs(lengths[name] or {}) do
      if length > longest then longest, at = length, r end
    end
    for _, bucket in ipairs(one.dim.buckets) do
      if bucket >= longest then
        extents[name] = bucket
        break
      end
    end
    if not extents[name] then
      core.error(("dim '%s': row %d of the batch is %d long, and the largest bucket is %d"):format(name, at, longest,
        one.dim.largest), one.dim.here)
    end
  end
  return extents
end

--- The extents of the dims where none are asked for: the largest.
---@param found table what of_feeds gave
---@return table<string, integer> extents
function dim.largest(found)
  local extents = {}
  for name, one in pairs(found) do extents[name] = one.dim.largest end
  return extents
end

--- "src=64,tgt=32"
---@param extents table<string, integer>
---@return string
function dim.text(extents)
  local parts = {}
  for name, extent in pairs(extents) do parts[#parts + 1] = ("%s=%d"):format(name, extent) end
  table.sort(parts)
  return table.concat(parts, ",")
end

--- All choices of buckets, the smallest first.
---@param found table what of_feeds gave
---@return table<string, integer>[]
function dim.choices(found)
  local list = { {} }
  for _, name in ipairs(names_of.sorted(found)) do
    local longer = {}
    for _, extents in ipairs(list) do
      for _, bucket in ipairs(found[name].dim.buckets) do
        local more = { [name] = bucket }
        for key, extent in pairs(extents) do more[key] = extent end
        longer[#longer + 1] = more
      end
    end
    list = longer
  end
  return list
end

---- for layers ----

--- The dim that runs along the axis of x, as the trace knows it, or nil.
---@param x sgl.tensor
---@param axis integer
---@param whole boolean? where it is made one with other dimensions that is an error
---@return { dim: sgl.dim, extent: integer, rows: integer?, lengths: sgl.tensor, mask: sgl.tensor }?
function dim.along(x, axis, whole)
  for name, entry in pairs(trace.dims()) do
    local found, merged = core.padded(x, name, axis)
    if found then return entry end
    if merged and whole then
      local what = "random numbers of %s: its dimension %d is '%s' and others in one; reshape after they are drawn"
      core.error(what:format(tostring(x), axis, name))
    end
  end
  return nil
end

--- What dim.along tells of axis 1 where x [batch, t, ...] is as long as the dim and its rows are the batch, or nil.
---@param x sgl.tensor
---@return { dim: sgl.dim, extent: integer, rows: integer, lengths: sgl.tensor, mask: sgl.tensor }?
function dim.whole(x)
  local entry = dim.along(x, 1)
  return entry and entry.rows == ops.shape(x, 0) and entry.extent == ops.shape(x, 1) and entry or nil
end

--- The mask [batch, t] for x [batch, t, ...] where t is padded, or nil.
---@param x sgl.tensor
---@return sgl.tensor?
function dim.mask_of(x)
  local entry = dim.whole(x)
  return entry and entry.mask
end

--- Numbers drawn for a shape that has a dim: those of the largest bucket, cut, so that a place has the same number in
--- every bucket.
---@param x sgl.tensor whose shape is drawn for
---@param draw fun(dims: integer[]): sgl.tensor
---@return sgl.tensor
function dim.draw(x, draw)
  local dims, cuts = ops.shape(x), {}
  for axis = 1, #dims do
    local entry = dim.along(x, axis - 1, true)
    if entry and dims[axis] <= entry.dim.largest then
      cuts[#cuts + 1] = { axis - 1, dims[axis] }
      dims[axis] = entry.dim.largest - (entry.extent - dims[axis])
    end
  end
  local drawn = draw(dims)
  for _, cut in ipairs(cuts) do drawn = core.emit("slice", { drawn }, { axis = cut[1], start = 0, stop = cut[2] }) end
  return drawn
end

return dim
