--- job.graphs: the graphs that are traced from a job: init, train, eval, decode, few, text, export.
--- Comes in: a job, and for train and eval the extents of its dims. Goes out: a graph, or nil: the job has none of it.
--- Invariant: a graph is traced anew each time it is asked for, and nothing of one trace reaches another.

local check = require "sgl.check"
local core = require "sgl.core"
local dims_of = require "sgl.dim"
local loss_module = require "sgl.nn.loss"
local names_of = require "sgl.names"
local ops = require "sgl.ops"
local own = require "sgl.step"
local trace = require "sgl.trace"

local graphs = {}

local function context_of(self, mode)
  return { mode = mode, dtype = self.plan.precision == "fp64" and "f64" or "f32", steps = self.steps,
    wanted_context = self.context, has_loss = self.loss ~= nil }
end

--- The most positions of a generation, nil: nothing says.
---@return integer?
function graphs.positions(self)
  local name, one = next(self.data.dims or {})
  local longest = name and next(self.data.dims, name) == nil and one.dim.largest or nil
  return self.context or self.data.seq or longest
end

-- Declares what a feed with a dim is padded with: what the script says, else 0 until a loss is told what it ignores
-- there.
-- Returns the function to tell it by, or nil.
local function padding_of(self, name, tensor)
  local feed, told = self.data.feeds[name], false
  local function declare(number)
    self.pads[name] = number
    core.padding(tensor, feed.dim.name, feed.axis, feed.axis - 1, number, false)
  end
  declare(feed.pad or 0)
  if feed.pad then return nil end
  return function(number)
    if not told then declare(number) end
    told = true
  end
end

-- The declared feeds as tensors of the graph being traced.
local function batch_of(self)
  local batch, names, fed = {}, names_of.sorted(self.data.feeds), trace.context().fed
  local extents = trace.context().extents
  dims_of.enter(self.data.dims or {}, extents)
  for _, name in ipairs(names) do
    local feed, shape = self.data.feeds[name], {}
    for i, extent in ipairs(feed.dims) do shape[i] = dims_of.is(extent) and extents[extent.name] or extent end
    batch[name] = core.input("feed", name, feed.dtype, shape)
  end
  if self.data.derive then self.data.derive(batch) end
  for name, tensor in pairs(batch) do
    local of_tokens = self.data.vocab and (name == "tokens" or name == "targets")
    if of_tokens or not self.data.vocab then
      fed[tensor] = { name = name, vocab = of_tokens and self.data.vocab or nil,
        pad_with = self.data.feeds[name].dim and padding_of(self, name, tensor) }
    end
  end
  return setmetatable(batch, {
    __index = function(_, name)
      core.error(("batch: the data has no feed '%s'%s"):format(tostring(name), names_of.hint(name, names)))
    end,
  })
end

-- What indices of Lua data must be below, as layers told in a trace: next_batch hands it on.
local function keep_bounds(self, context)
  for _, fed in pairs(context.fed) do
    if fed.below then
      local bound = self.bounds[fed.name] or fed
      self.bounds[fed.name] = { below = math.min(bound.below, fed.below), ignore = fed.ignore }
    end
  end
end

local function scalar(name) return core.input("feed", name, "i64", {}) end

-- The states that stand for the parameters where nothing is learnt, by the paths of these: averages, if the job says
-- so.
local function averages_of(self)
  if not self.ema then return nil end
  local learnt = { { optimizer = self.optim, parameters = self.parameters } }
  if self.step then
    graphs.trace_train(self)
    learnt = self.learnt
  end
  local names = {}
  for _, one in ipairs(learnt) do
    for path, state in pairs(one.optimizer:averages(one.parameters) or {}) do names[path] = state end
  end
  if next(names) == nil then
    core.error("job: ema needs an optimizer that keeps averages, such as optim.adamw { lr = 1e-3, ema = 0.999 }",
      self.here)
  end
  return names
end

---- the graphs ----

local function check_first(what, value, tensor)
  if core.is_tensor(value) and tostring(value) == tostring(tensor) then return end
  core.error(("init of %s gives %s, it must be %s"):format(what, tostring(value), tostring(tensor)))
end

local function with(list, more)
  return table.move(more, 1, #more, #list + 1, table.move(list, 1, #list, 1, {}))
end

--- Every parameter, buffer and state gets its first value. Feed: seed.
function graphs.trace_init(self)
  local learnt = { { optimizer = self.optim, parameters = self.parameters } }
  if self.step then
    graphs.trace_train(self)
    learnt = self.learnt
  end
  return core.trace("init", function()
    local context = context_of(self, "init")
    trace.run(context, function()
      local seed = scalar "seed"
      context.seed = seed
      for _, parameter in ipairs(with(self.parameters, self.buffers)) do
        local tensor = parameter()
        local path = parameter.path
        local value = core.scope(path, parameter.init, parameter.dims, context.dtype, seed, core.hash(path))
        check_first("parameter '" .. path .. "'", value, tensor)
        core.update(parameter.path, value)
      end
      for _, one in ipairs(learnt) do
        one.optimizer:states(one.parameters, function(path, dims)
          core.input("state", path, context.dtype, dims)
          core.update(path, ops.zeros(dims, context.dtype))
        end)
      end
      for _, state in ipairs(own.states()) do
        local tensor, dtype = state(), state.dtype or context.dtype
        local value = core.scope(state.name, state.init, state.dims, dtype, seed, core.hash(state.name))
        check_first("state '" .. state.name .. "'", value, tensor)
        core.update(state.name, value)
      end
    end)
  end)
end

-- The mean of the loss function, and the count that it is a mean over: what the function returns, or what its
-- nn.cross_entropy (the first, if it has several) has counted; 1 when there is neither.
local function traced_loss(self, batch)
  local mean, count = self.loss(batch)
  if not core.is_tensor(mean) or core.rank(mean) ~= 0 then
    core.error(("loss: the function must return a tensor of rank 0, it returned %s"):format(tostring(mean)), self.here)
  end
  if count ~= nil and not (type(count) == "number" or (core.is_tensor(count) and core.rank(count) == 0)) then
    core.error(("loss: the count of targets must be a tensor of rank 0 or a number, it is %s"):format(tostring(count)),
      self.here)
  end
  if type(count) == "number" then count = core.constant(count, core.dtype(mean)) end
  local counted = trace.context().counts[1]
  self.counts_targets = (count or counted) ~= nil
  return mean, count or (counted and counted.count) or core.constant(1, core.dtype(mean))
end

-- What layers keep for themselves; of several calls in a step the last one has told the value.
local function update_buffers(self, context)
  for _, buffer in ipairs(self.buffers) do
    if context.buffers[buffer] then trace.update(buffer.path, context.buffers[buffer]) end
  end
end

-- What sgl.log was given, in the order of the names.
local function fetch_logs(context, prefix)
  table.sort(context.logs, function(a, b) return a.name < b.name end)
  for _, entry in ipairs(context.logs) do core.fetch(prefix .. entry.name, entry.value) end
end

-- One optimizer step, with these extents of its dims.
local function traced_train(self, extents)
  return core.trace("train", function()
    local context = context_of(self, "train")
    context.extents = extents
    trace.run(context, function()
      context.seed, context.step = scalar "seed", scalar "step"
      context.here = core.here(self.loss or self.step)
      local batch = batch_of(self)
      if self.step then
        local shown = self.step(batch)
        if shown ~= nil and type(shown) ~= "table" then
          local what = "step: it returns a table of numbers to show, such as { loss = loss }, or nothing; not %s"
          core.error(what:format(check.show(shown)), self.here)
        end
        for name, value in pairs(shown or {}) do trace.log(name, value) end
        self.learnt = context.learnt
        update_buffers(self, context)
        if not context.updated and not self.warned then
          core.warn("step: it updates nothing, so nothing is learnt: optimizer:minimize(loss, model) and sgl.update do")
          self.warned = true
        end
      else
        local loss = traced_loss(self, batch)
        core.fetch("loss", loss)
        local numbers = self.optim:minimize(loss, self.model)
        update_buffers(self, context)
        core.fetch("lr", numbers.lr)
        core.fetch("grad_norm", numbers.grad_norm)
      end
      fetch_logs(context, "")
      keep_bounds(self, context)
    end)
  end)
end

-- Loss of one batch, nothing learnt. nil for jobs with a step of their own.
local function traced_eval(self, extents)
  if not self.loss then return nil end
  local averages = averages_of(self)
  return core.trace("eval", function()
    local context = context_of(self, "eval")
    context.averages, context.extents = averages, extents
    trace.run(context, function()
      local mean, count = traced_loss(self, batch_of(self))
      keep_bounds(self, context)
      core.fetch("loss_sum", mean * count)
      core.fetch("count", count)
      fetch_logs(context, "log.")
    end)
  end)
end

-- The graph with another bucket of the dim, or where there is one alone half of it: to see what in a trace depends on
-- the extent. The last one that was traced is at hand.
local function other_graph(self, which, trace_graph, name, extents)
  local other, last, extent = {}, self.last[which], extents[name]
  for key, one in pairs(extents) do other[key] = one end
  if last and last.extents[name] ~= extent then
    other[name] = last.extents[name]
    if dims_of.text(other) == dims_of.text(last.extents) then return last.graph end
  end
  other[name] = extent > 1 and extent // 2 or 2
  for _, bucket in ipairs(self.data.dims[name].dim.buckets) do
    if bucket ~= extent then
      other[name] = bucket
      break
    end
  end
  return trace_graph(self, other)
end

-- The graph of a choice of buckets, nil: the largest, held to the promise that padding changes no number.
local function with_extents(self, which, trace_graph, given)
  local dims = self.data.dims or {}
  local extents = given or dims_of.largest(dims)
  local graph = trace_graph(self, extents)
  if not graph or next(dims) == nil then return graph end
  core.padding_check(graph)
  for name in pairs(dims) do
    core.padding_compare(graph, other_graph(self, which, trace_graph, name, extents), name)
  end
  self.last[which] = { extents = extents, graph = graph }
  return graph
end

--- One optimizer step. Feeds: the batch, step, seed. Fetches: loss, lr, grad_norm, and what sgl.log named.
---@param extents table<string, integer>? of the dims; default: the largest
function graphs.trace_train(self, extents) return with_extents(self, "train", traced_train, extents) end

--- Loss of one batch, nothing learnt. Fetches: loss_sum, count, and log.NAME of what sgl.log named. nil for jobs with a
--- step of their own.
---@param extents table<string, integer>? of the dims; default: the largest
function graphs.trace_eval(self, extents) return with_extents(self, "eval", traced_eval, extents) end

-- The model's logits [1, vocab] of tokens [1, length]: of the last one, or where there are several of number `last`.
local function next_logits(self, length)
  local logits = self.model(core.input("feed", "tokens", "i32", { 1, length }))
  local function at_last(x) return length > 1 and ops.dynamic_slice(x, scalar "last", 1, 1) or x end
  if getmetatable(logits) == loss_module.Logits then
    local hidden = at_last(logits.hidden)
    logits = setmetatable({ hidden = hidden, weight = logits.weight }, loss_module.Logits):tensor()
  elseif core.is_tensor(logits) and core.rank(logits) == 3 then
    logits = at_last(logits)
  else
    core.error(("decode: the model must give logits [1, %d, vocab], it gave %s"):format(length, tostring(logits)),
      self.here)
  end
  core.fetch("logits", ops.reshape(logits, 1, ops.shape(logits, 2)))
end

--- Logits of the next token. Feeds: tokens i32 [1, 1], position i64 []. Fetch: logits [1, vocab].
function graphs.trace_decode(self)
  local context = context_of(self, "decode")
  context.context, context.generating = graphs.positions(self), true
  if not context.context then return nil end
  context.averages = averages_of(self)
  return core.trace("decode", function()
    trace.run(context, function()
      context.position = scalar "position"
      next_logits(self, 1)
    end)
  end)
end

-- The same from a text, without caches. Feeds: tokens i32 [1, n], last i64 []. Fetch: logits [1, vocab] after token
-- number `last`.
local function trace_text(self, name, most)
  local context, length = context_of(self, "eval"), graphs.positions(self)
  if not length or length < 2 then return nil end
  context.generating, context.averages = true, averages_of(self)
  return core.trace(name, function()
    trace.run(context, function() next_logits(self, math.min(length, most)) end)
  end)
end

--- A few tokens, to compare with as many steps of "decode"; a text as long as the context.
function graphs.trace_few(self) return trace_text(self, "few", 8) end
function graphs.trace_text(self) return trace_text(self, "text", math.maxinteger) end

--- What a model is without its run: each parameter and buffer by its path, adapters merged into the weights that they
--- adapt, averages in the place of parameters where the job says so.
function graphs.trace_export(self)
  local context = context_of(self, "eval")
  context.averages = averages_of(self)
  return core.trace("export", function()
    trace.run(context, function()
      for _, parameter in ipairs(with(self.parameters, self.buffers)) do
        if parameter.role ~= "state" then core.fetch(parameter.path, parameter()) end
      end
    end)
  end)
end

--- The graph of a choice that choose or choice gave.
---@param which "train"|"eval"
---@param text string
function graphs.trace_choice(self, which, text)
  return graphs["trace_" .. which](self, (self.choices or {})[text])
end

return graphs
