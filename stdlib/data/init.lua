--- data: where batches come from.
--- Comes in: options. Goes out: a description that sgl.job hands to the C core: token data is read there, memory-mapped
--- and shuffled by a counter; data.batches calls a Lua function for every batch.

local check = require "sgl.check"
local core = require "sgl.core"
local dims_of = require "sgl.dim"
local ops = require "sgl.ops"

---@class sgl.data
local data = {}

local Source = {}
Source.__index = Source
function Source:__tostring() return "data." .. self.kind end

-- The files: of --data, or those of the script. "" is none yet, which is told when they are opened.
local function list_paths(where, options)
  local path = core.settings()["data.path"] or options.path
  local paths = type(path) == "table" and path or { path }
  if #paths == 0 then core.error(where .. ": give path = \"FILE\", or a list of files") end
  for i, one in ipairs(paths) do
    check.value(where, type(path) == "table" and ("path %d"):format(i) or "path", "text", one)
  end
  return paths
end

-- A sequence holds several documents, each with the token `ending` at its end: which one each place is in, numbered
-- from 0 in every sequence. Nothing is foretold across a border: the target behind an end is one that losses ignore.
local function unpack_documents(batch, ending)
  local ends = ops.equal(batch.tokens, ending)
  batch.documents = ops.cumsum(ops.cast(ends, "i32"), 1, { exclusive = true })
  batch.targets = ops.select(ends, ops.constant(-1, "i32"), batch.targets)
end

-- What sgl.job calls on the batch of every graph, or nil.
local function derivation(where, options, vocab)
  local ending = options.document_end
  if not options.pack then
    if ending then core.error(where .. ": document_end needs pack = true") end
    return nil
  end
  if not ending then core.error(where .. ": pack needs document_end, the token that ends a document") end
  if ending >= vocab then
    core.error(("%s: document_end (%d) is not below vocab (%d)"):format(where, ending, vocab))
  end
  return function(batch) unpack_documents(batch, ending) end
end

local formats = { bytes = true, u16 = true, u32 = true, llmc = true }

local function tokens(kind, options, fields, format, vocab)
  local where = "data." .. kind
  for name, value in pairs { path = "any?", seq = "size", batch = "size", held_out = "rate?", seed = "count?",
    pack = "flag?", document_end = "count?" } do
    fields[name] = value
  end
  if type(options) == "table" and dims_of.is(options.seq) then
    core.error(where .. ": its windows have one length, seq is an integer; rows of many lengths are for data.batches")
  end
  check.options(where, options, fields)
  if format and not formats[format] then
    core.error(("%s: there is no format '%s'; there are u16, u32 and llmc"):format(where, format))
  end
  local paths, held_out, batch, seq = list_paths(where, options), options.held_out or 0.05, options.batch, options.seq
  if held_out > 0.5 then core.error(("%s: held_out must be within 0 .. 0.5, not %g"):format(where, held_out)) end
  return setmetatable({
    kind = kind, paths = paths, format = format, vocab = vocab, seq = seq, batch = batch, held_out = held_out,
    seed = options.seed, -- that of the job when there is none
    derive = derivation(where, options, vocab),
    feeds = { tokens = { dtype = "i32", dims = { batch, seq } }, targets = { dtype = "i32", dims = { batch, seq } } },
  }, Source)
end

--- The bytes of one text file or many. `sgl train --data FILE` names another. A byte that is not below vocab (default
--- 256) is an error. With `pack` every place knows its document, which ends with the token document_end:
--- batch.documents i32 [batch, seq], for nn.attention; targets across a border are -1, which nn.cross_entropy ignores.
---@param options { path: string|string[], vocab: integer?, seq: integer, batch: integer, held_out: number?, seed: integer?, pack: boolean?, document_end: integer? } held_out: share of the end kept for evaluation, default 0.05
---@return table
function data.text(options)
  return tokens("text", options, { vocab = "size?" }, "bytes", type(options) == "table" and options.vocab or 256)
end

--- Token files: raw uint16 or uint32, or headed as llm.c's. `pack` as for data.text.
---@param options { path: string|string[], vocab: integer, seq: integer, batch: integer, format: "u16"|"u32"|"llmc"?, held_out: number?, seed: integer?, pack: boolean?, document_end: integer? }
---@return table
function data.tokens(options)
  local given = type(options) == "table" and options or {}
  return tokens("tokens", options, { vocab = "size", format = "text?" }, given.format, given.vocab)
end

--- Batches made by Lua: next(cursor, is_eval) returns { feed = flat list of numbers, ... }, or nil past the last. Where
--- a feed has an sgl.dim (as its first dimension, or behind the rows) it is given as a list of rows, each as long as it
--- is. pad: what stands behind a row's end; by default what the loss ignores where the feed is its targets, else 0.
---@param options { feeds: table<string, { dtype: string, dims: (integer|sgl.dim)[], pad: number? }>, next: fun(cursor: integer, is_eval: boolean): table? }
---@return table
function data.batches(options)
  check.options("data.batches", options, { feeds = "any", next = "call" })
  if type(options.feeds) ~= "table" then core.error("data.batches: give feeds = { name = { dtype =, dims = } }") end
  local feeds = {}
  for name, feed in pairs(options.feeds) do
    local where = ("data.batches: feed '%s'"):format(tostring(name))
    check.options(where, feed, { dtype = "text", dims = "any", pad = "any?" })
    core.check_dtype(feed.dtype, where)
    if type(feed.dims) ~= "table" then core.error(where .. ": dims must be a list of extents") end
    for i, extent in ipairs(feed.dims) do
      if not dims_of.is(extent) then check.value(where, "extent " .. i, "count", extent) end
    end
    if feed.pad ~= nil and type(feed.pad) ~= "number" then
      core.error(("%s: pad must be a number, not %s"):format(where, check.show(feed.pad)))
    end
    feeds[name] = { dtype = feed.dtype, dims = feed.dims, pad = feed.pad }
  end
  local dims = dims_of.of_feeds(feeds, "data.batches")
  for name, feed in pairs(feeds) do
    if feed.pad and not feed.dim then
      core.error(("data.batches: feed '%s': pad is for feeds that have an sgl.dim"):format(name))
    end
  end
  return setmetatable({ kind = "batches", feeds = feeds, dims = dims, next = options.next }, Source)
end

core.exact(data, "data")
return data
