--- data: where batches come from.
--- Comes in: options. Goes out: a description that sgl.job hands to the C core: token data is read there,
--- memory-mapped and
--- shuffled by a counter; data.batches calls a Lua function for every batch.

local core = require "sgl.core"

---@class sgl.data
local data = {}

local Source = {}
Source.__index = Source
function Source:__tostring() return "data." .. self.kind end

local function integer(where, options, name)
  local value = options[name]
  if math.type(value) ~= "integer" or value < 1 then
    core.error(("data.%s: %s must be an integer of at least 1, not %s"):format(where, name, tostring(value)))
  end
  return value
end

local function tokens(kind, options, format, vocab)
  local path = core.settings()["data.path"] or options.path
  local paths = type(path) == "table" and path or { path }
  local held_out = options.held_out or 0.05
  if type(held_out) ~= "number" or held_out < 0 or held_out > 0.5 then
    core.error(("data.%s: held_out must be within 0 .. 0.5, not %s"):format(kind, tostring(held_out)))
  end
  local batch, seq = integer(kind, options, "batch"), integer(kind, options, "seq")
  return setmetatable({
    kind = kind, paths = paths, format = format, vocab = vocab, seq = seq, batch = batch, held_out = held_out,
    seed = options.seed, -- that of the job when there is none
    feeds = { tokens = { dtype = "i32", dims = { batch, seq } }, targets = { dtype = "i32", dims = { batch, seq } } },
  }, Source)
end

--- The bytes of one text file or many. `sgl train --data FILE` names another. A byte that is not below vocab (default
--- 256) is
--- an error.
---@param options { path: string|string[], vocab: integer?, seq: integer, batch: integer, held_out: number?, seed: integer? } held_out: share of the end kept for evaluation, default 0.05
function data.text(options)
  return tokens("text", options, "bytes", options.vocab and integer("text", options, "vocab") or 256)
end

--- Token files: raw uint16 or uint32, or headed as llm.c's.
---@param options { path: string|string[], vocab: integer, seq: integer, batch: integer, format: "u16"|"u32"|"llmc"?, held_out: number?, seed: integer? }
function data.tokens(options) return tokens("tokens", options, options.format, integer("tokens", options, "vocab")) end

--- Batches made by Lua: next(cursor, is_eval) returns { feed = flat list of numbers, ... }, or nil past the last.
---@param options { feeds: table<string, { dtype: string, dims: integer[] }>, next: fun(cursor: integer, is_eval: boolean): table? }
function data.batches(options)
  if type(options.feeds) ~= "table" or type(options.next) ~= "function" then
    core.error("data.batches: give feeds = { name = { dtype =, dims = } } and next = function(cursor, is_eval)")
  end
  return setmetatable({ kind = "batches", feeds = options.feeds, next = options.next }, Source)
end

return data
