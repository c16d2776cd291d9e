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
---@field generating boolean? logits of a next token are asked for, in decode and in eval
---@field position sgl.tensor? i64 [], decode only: of the first token read in
---@field averages table<string, string>? states that stand for parameters, by their paths
---@field context integer? positions that the decode caches hold
---@field logs table[] what sgl.log was given
---@field has_loss boolean? the run itself reports loss, lr and grad_norm
---@field learnt table[] which parameters each optimizer learns: { optimizer, parameters }
---@field updated boolean? something has a new value
---@field fed table<sgl.tensor, table> the feeds of data that hold integers: { name, vocab of token data }
---@field counts table[] what losses are means over: { targets, ignore, count }
---@field buffers table<sgl.buffer, sgl.tensor> the new values of those that have one
---@field reported table<string, boolean> paths of layers that have logged
---@field owed table[] terms that layers want in the loss: { path, value }
---@field terms table[] those of them that the loss has taken up
---@field low table<sgl.tensor, table> by a weight with an adapter: { weight, a, b, scale }
---@field whole table<sgl.tensor, sgl.tensor> the same weights by those without it
---@field here string? the line of the loss function
---@field dims table<string, table> dims with buckets by their names: { dim, extent, rows, lengths, mask }
---@field wanted_context integer? the context that the job asks for

--- Runs fn(...) with `context` as the trace at hand; what an error leaves behind is undone by the next trace.
---@param context sgl.trace.context
---@param fn function
---@param ... any
function trace.run(context, fn, ...)
  now = context
  context.path, context.ordinals, context.logs = "", {}, {}
  context.learnt, context.fed, context.counts = {}, {}, {}
  context.low, context.whole, context.dims = {}, {}, {}
  context.buffers, context.owed, context.reported, context.terms = {}, {}, {}, {}
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

--- The dims with buckets of the trace at hand, by their names; none outside of one.
---@return table<string, table>
function trace.dims() return now and now.dims or {} end

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

local drawn = 0 -- outside of a trace: how often numbers were asked for

--- Seed, step and id of random numbers that are others at each step and each place; where there is no seed or step (an
--- evaluation, a console) they are 0; in generation the step is the position.
---@return sgl.tensor seed i64 []
---@return sgl.tensor step i64 []
---@return integer id
function trace.random()
  local zero = core.constant(0, "i64")
  if now then return now.seed or zero, now.step or now.position or zero, trace.random_id() end
  drawn = drawn + 1
  return zero, zero, core.hash("#" .. drawn)
end

local spread <const> = 7046029254386353 -- odd, so that steps and turns do not meet

--- Runs fn(...), whose nodes stand in a loop's body (index: its turn) or in a branch (nil). Random numbers differ from
--- turn to turn: there the step is another for each.
---@param index sgl.tensor? i64 []
---@param fn function
---@param ... any
function trace.turn(index, fn, ...)
  if not now then return fn(...) end
  local context, step = now, now.step
  if index and step then context.step = step * spread + (index + 1) end
  local inside = context.inside or 0
  context.inside = inside + 1
  local _ <close> = setmetatable({}, { __close = function() context.step, context.inside = step, inside end })
  return fn(...)
end

-- What a line of the log has beside the numbers of the graph.
local of_run = {
  step = true, tokens = true, tokens_per_s = true, step_ms = true, bucket = true,
  eval_loss = true, eval_tokens = true, eval_targets = true, eval_batches = true,
  targets = true, batches = true, -- in the line of an evaluation all names stand behind "eval_"
}
local of_loss = { loss = true, lr = true, grad_norm = true }

--- One more number to show at each step.
---@param name string
---@param value sgl.tensor rank 0
function trace.log(name, value)
  if core.is_tensor(name) then
    core.error("sgl.log(name, value) shows a number at each step; the logarithm is the method, x:log()")
  end
  local context = current("sgl.log")
  if (context.inside or 0) > 0 then
    core.error("sgl.log: not in a function given to scan, while_loop or cond; return the value from it")
  end
  if type(name) ~= "string" or not core.is_tensor(value) or core.rank(value) ~= 0 then
    core.error("sgl.log(name, value): name must be a string and value a tensor of rank 0")
  end
  if of_run[name] or (context.has_loss and of_loss[name]) then
    core.error(("sgl.log: '%s' is what the run itself reports; give the number another name"):format(name))
  end
  for _, entry in ipairs(context.logs) do
    if entry.name == name then core.error(("sgl.log: '%s' is logged already"):format(name)) end
  end
  context.logs[#context.logs + 1] = { name = name, value = value }
end

--- A new value of a parameter or state, in a train graph.
---@param name string
---@param value sgl.tensor
function trace.update(name, value)
  local context = current("update")
  if context.mode ~= "train" then return end
  core.update(name, value)
  context.updated = true
end

--- `indices` choose among `rows` rows, but for those that equal `ignore`. Where they are a feed: token data must not
--- give more, the numbers of a Lua batch are looked at when they are fed.
---@param where string the layer
---@param indices sgl.tensor
---@param rows integer
---@param ignore integer?
---@return boolean known whether it is looked after, as for a feed; what a script has computed is not
function trace.bound(where, indices, rows, ignore)
  local fed = now and now.fed[indices]
  if not fed then return false end
  if fed.vocab and fed.vocab > rows then
    local what = "%s: '%s' of the data are below %d (its vocab), here are %d rows: the model's vocab is too small"
    core.error(what:format(where, fed.name, fed.vocab, rows))
  end
  fed.below, fed.ignore = math.min(fed.below or rows, rows), ignore
  if ignore and fed.pad_with then fed.pad_with(ignore) end
  return true
end

--- `whole` is a weight with an adapter: low.weight + low.scale * low.b low.a.
---@param whole sgl.tensor
---@param low { weight: sgl.tensor, a: sgl.tensor, b: sgl.tensor, scale: number }
function trace.adapt(whole, low)
  local context = current("lora")
  context.low[whole], context.whole[low.weight] = low, whole
end

--- What trace.adapt has said of the weight with the adapter, or nil.
---@param whole sgl.tensor
---@return { weight: sgl.tensor, a: sgl.tensor, b: sgl.tensor, scale: number }?
function trace.low(whole) return now and now.low[whole] end

--- The weight with its adapter by the one without it, where it was asked for before in this trace.
---@param weight sgl.tensor
---@return sgl.tensor?
function trace.adapted(weight) return current("lora").whole[weight] end

--- A loss is a mean over `count` targets.
---@param targets sgl.tensor
---@param ignore integer
---@param count sgl.tensor rank 0
function trace.counted(targets, ignore, count)
  local counts = current("loss").counts
  counts[#counts + 1] = { targets = targets, ignore = ignore, count = count }
end

--- What a step does once cannot be done in the turns of a loop or in a branch.
---@param what string
function trace.check_outside(what)
  if (current(what).inside or 0) == 0 then return end
  core.error(("%s: not in a function given to scan, while_loop or cond"):format(what))
end

--- A layer wants `value` in the loss that is learnt from; nn.auxiliary_loss takes it up.
---@param value sgl.tensor rank 0
function trace.owe(value)
  local context = current("auxiliary loss")
  if context.mode ~= "train" then return end
  trace.check_outside("'" .. context.path .. "': an auxiliary loss")
  context.owed[#context.owed + 1] = { path = context.path, value = value }
end

--- What is owed so far, and no longer.
---@return { path: string, value: sgl.tensor }[]
function trace.settle()
  local context = current("auxiliary_loss")
  local owed = context.owed
  context.owed = {}
  table.move(owed, 1, #owed, #context.terms + 1, context.terms)
  return owed
end

--- Nothing may be owed when a loss is learnt from.
function trace.check_settled()
  local first = current("minimize").owed[1]
  if not first then return end
  core.error(("'%s' has an auxiliary loss that is in no loss: add nn.auxiliary_loss() to it"):format(first.path))
end

return trace
