--- nn.cache: what a layer of one's own keeps of the places before, so that text is generated token by token.
--- Comes in: a name within the module at hand, and what a call has made. Goes out: what stands there of all places so
--- far. Outside of generation nothing is kept: a call sees the whole sequence.
--- While generating a call gets the tokens that are new, one or more; the caches of the session hold what was before
--- them. A layer that looks at other places and keeps nothing of them is noticed (sgl_generate_agrees): each new token
--- then reads all of the text again, which is right, and slow.

local core = require "sgl.core"
local check = require "sgl.check"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

---@class sgl.nn.cache
local cache = {}

local function path_of(what, name)
  check.value(what, "name", "text", name)
  return ("cache.%s/%s"):format(name, trace.path())
end

--- Whether this is the step of a generation.
---@return boolean
function cache.is_generating() return trace.mode() == "decode" end

--- The place of the first row of a call in the whole text: 0 but while generating.
---@return sgl.tensor i64 []
function cache.position() return trace.position() end

--- Rows of all places: `fresh` itself; while generating the cache [batch, context, ...] with the new rows written at
--- the position. What stands behind the last new row is of no meaning and must be masked, as causal attention does.
---@param name string
---@param fresh sgl.tensor [batch, t, ...]
---@return sgl.tensor
function cache.along(name, fresh)
  local path = path_of("cache.along", name)
  if not core.is_tensor(fresh) or core.rank(fresh) < 2 then
    core.error(("cache.along: '%s' must be a tensor [batch, t, ...], not %s"):format(name, check.show(fresh)))
  end
  if not cache.is_generating() then return fresh end
  local dims = ops.shape(fresh)
  dims[2] = trace.context().context
  local whole = ops.dynamic_update(core.input("cache", path, core.dtype(fresh), dims), fresh, trace.position(), 1)
  core.update(path, whole)
  return whole
end

--- What a call left behind, `first` before the first place, and a function that leaves something for the next one.
---@param name string
---@param first sgl.tensor
---@return sgl.tensor before
---@return fun(after: sgl.tensor) keep
function cache.state(name, first)
  local path = path_of("cache.state", name)
  if not core.is_tensor(first) then
    core.error(("cache.state: what '%s' begins with must be a tensor, not %s"):format(name, check.show(first)))
  end
  local wanted, generating = tostring(first), cache.is_generating()
  local function keep(after)
    if not core.is_tensor(after) or tostring(after) ~= wanted then
      core.error(("cache.state: '%s' is %s, what is kept of it is %s"):format(name, wanted, check.show(after)))
    end
    if generating then core.update(path, after) end
  end
  if not generating then return first, keep end
  local before = core.input("cache", path, core.dtype(first), core.dims(first))
  return ops.select(ops.equal(trace.position(), 0), first, before), keep
end

core.exact(cache, "nn.cache")
return cache
