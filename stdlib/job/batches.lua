--- job.batches: the batches of Lua data, and which buckets of its dims each one needs.
--- Comes in: a job and a cursor into its data. Goes out: what the data function gave, the lengths of its rows, a choice
--- of buckets as text.
--- Invariant: of each cursor the data function is asked once, whoever wants to know how long its rows are before.

local core = require "sgl.core"
local dims_of = require "sgl.dim"
local names_of = require "sgl.names"

local batches = {}

-- What the data function gives for the cursor, and how long its rows are along the dims. It is kept until it is fed, so
-- that a batch is made once, whoever asks how long it is before.
local function made_batch(self, cursor, is_eval)
  local waiting = self.waiting
  if waiting and waiting.cursor == cursor and waiting.is_eval == is_eval then return waiting end
  self.waiting = nil
  local batch = self.data.next(cursor, is_eval)
  if type(batch) == "table" then
    for name in pairs(batch) do
      if type(name) ~= "string" then core.error("batch: its keys must be the names of feeds", self.here) end
      if not self.data.feeds[name] then
        local hint = names_of.hint(name, names_of.sorted(self.data.feeds))
        core.error(("batch: the data declares no feed '%s'%s"):format(name, hint), self.here)
      end
    end
  end
  local made = { cursor = cursor, is_eval = is_eval, batch = batch }
  if type(batch) == "table" and next(self.data.dims or {}) ~= nil then
    made.lengths = dims_of.measure(self.data.dims, self.data.feeds, batch, self.here)
  end
  self.waiting = made
  return made
end

--- One batch of Lua data: { feed = flat list, or rows of a dim }, or nil past the last. A graph need not read every
--- feed.
---@param cursor integer
---@param is_eval boolean
---@return table?
---@return table<string, { below: integer, ignore: integer? }>? bounds what layers choose rows by
---@return table<string, { dim: string, axis: integer, pad: number }>? padded the feeds that have a dim
function batches.next_batch(self, cursor, is_eval)
  if not self.data.next then return nil end
  local made = made_batch(self, cursor, is_eval)
  self.waiting = nil
  if not made.lengths then return made.batch, self.bounds end
  local batch, padded = {}, {}
  for name, value in pairs(made.batch) do
    local feed = self.data.feeds[name]
    batch[name] = value
    if feed.dim then
      padded[name] = { dim = feed.dim.name, axis = feed.axis, pad = self.pads[name] or feed.pad or 0 }
    end
  end
  for name, lengths in pairs(made.lengths) do batch["dim." .. name] = lengths end
  return batch, self.bounds, padded
end

---- by buckets ----

--- The choice of buckets that a batch needs, as text ("" without dims), and how many tokens it has; nil past the last.
---@param cursor integer
---@param is_eval boolean
---@return string?
---@return integer? tokens elements of the feed `tokens` without padding, where it has a dim
function batches.choose(self, cursor, is_eval)
  local dims = self.data.dims or {}
  if next(dims) == nil then return "" end
  local made, tokens = made_batch(self, cursor, is_eval), nil
  if made.batch == nil then
    self.waiting = nil
    return nil
  end
  if not made.lengths then return dims_of.text(dims_of.largest(dims)) end -- what is no table is told of when it is fed
  local feed = self.data.feeds.tokens
  if feed and feed.dim and made.batch.tokens then
    tokens = 0
    for _, length in ipairs(made.lengths[feed.dim.name]) do tokens = tokens + length end
    for i = feed.axis + 2, #feed.dims do tokens = tokens * feed.dims[i] end
  end
  local extents = dims_of.choose(dims, made.lengths)
  local text = dims_of.text(extents)
  self.choices = self.choices or {}
  self.choices[text] = extents
  return text, tokens
end

--- Choice `index` (from 0) of buckets as text, the smallest first; nil past the last.
---@param index integer
---@return string?
function batches.choice(self, index)
  local extents = dims_of.choices(self.data.dims or {})[index + 1]
  if not extents then return nil end
  local text = dims_of.text(extents)
  self.choices = self.choices or {}
  self.choices[text] = extents
  return text
end

return batches
