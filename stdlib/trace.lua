--- What is known while a graph is traced: the mode, the dtype of parameters, the run-time scalars, the module path.
--- Comes in: a table for the trace at hand, from sgl.job. Goes out: the answers that layers ask for.
--- Invariant: `now` is nil outside a trace, so that a layer called outside one says so.

local core = require "sgl.core"

local trace = {}
local now

---@class sgl.trace.context
---@field mode "init"|"train"|"eval"|"decode"
---@field dtype string of parameters and activations
---@field seed sgl.tensor? i64 []
---@field step sgl.tensor? i64 [], from 1
---@field position sgl.tensor? i64 [], decode only: of the first token read in
---@field context integer? positions that the decode caches hold
---@field logs table[] what sgl.log was given

--- Runs fn(...) with `context` as the trace at hand; what an error leaves behind is undone by the next trace.
---@param context sgl.trace.context
---@param fn function
---@param ... any
function trace.run(context, fn, ...)
  now = context
  context.path, context.ordinals, context.logs = "", {}, {}
  local function done(...)
    now = nil
    return ...
  end
  return done(fn(...))
end

local function current(what)
  if not now then core.error(what .. ": only inside a traced function (a model's forward, a loss, a step)") end
  return now
end

function trace.mode() return current("mode").mode end
function trace.is_tracing() return now ~= nil end
function trace.dtype() return current("parameter").dtype end
function trace.path() return current("path").path end
function trace.context() return current("context") end

--- i64 [] zero, or the position of the first token in a decode step.
function trace.position()
  local context = current("position")
  return context.position or core.constant(0, "i64")
end

--- Runs fn(...) under the module path `path`, for names of states, random ids and origins.
---@param path string
---@param fn function
---@param ... any
function trace.within(path, fn, ...)
  local context = current(path)
  local outer = context.path
  context.path = path
  local function leave(...)
    context.path = outer
    return ...
  end
  return leave(core.scope(path, fn, ...))
end

--- An id for a random op: fixed by the module path and how many came before it there, not by the order of a run.
function trace.random_id()
  local context = current("random")
  local path = context.path
  local ordinal = (context.ordinals[path] or 0) + 1
  context.ordinals[path] = ordinal
  return core.hash(("%s#%d"):format(path, ordinal))
end

--- One more number to show at each step.
---@param name string
---@param value sgl.tensor rank 0
function trace.log(name, value)
  local context = current("sgl.log")
  if type(name) ~= "string" or not core.is_tensor(value) or core.rank(value) ~= 0 then
    core.error("sgl.log(name, value): name must be a string and value a tensor of rank 0")
  end
  context.logs[#context.logs + 1] = { name = name, value = value }
end

return trace
