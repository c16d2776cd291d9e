--- sgl.job: what a script returns, and the graphs that are traced from it.
--- Comes in: { model, loss, data, optim, plan } or { model, step, data, plan }. Goes out: a job; the C side asks it for
--- its graphs by name (job.trace_train and its kin, which sgl.h tells of), its plan, its data and its numbers.
--- Invariant: a graph is traced anew each time it is asked for, and nothing of one trace reaches another.

local check = require "sgl.check"
local core = require "sgl.core"
local dims_of = require "sgl.dim"
local base = require "sgl.nn.module"
local loss_module = require "sgl.nn.loss"
local make_plan = require "sgl.plan"
local names_of = require "sgl.names"
local ops = require "sgl.ops"
local own = require "sgl.step"
local optimizer = require "sgl.optim.optimizer"
local trace = require "sgl.trace"

local fields = {
  "model", "loss", "step", "data", "optim", "plan", "steps", "eval_every", "eval_batches", "save_every", "keep", "seed",
  "context", "ema",
}

-- Those that `--set job.FIELD=N` may change.
local numbers = { "steps", "eval_every", "eval_batches", "save_every", "keep", "seed", "context" }

-- `--set job.ema=true`: a flag among them.
local flags = { ["true"] = true, ["1"] = true, ["false"] = false, ["0"] = false }

local function contains(list, name)
  for _, entry in ipairs(list) do
    if entry == name then return true end
  end
  return false
end

local Job = {}
Job.__index = Job
function Job:__tostring() return "job of " .. self.model.kind end

local job = {}

local function check_fields(given)
  for key in pairs(given) do
    if not contains(fields, key) then
      core.error(("job: there is no field '%s'%s"):format(tostring(key), names_of.hint(key, fields)))
    end
  end
  if not base.is_module(given.model) then
    core.error("job: model must be a module (nn.module and the layers make them)")
  end
  if (given.loss == nil) == (given.step == nil) then core.error("job: give either loss and optim, or step") end
  check.value("job", given.loss and "loss" or "step", "call", given.loss or given.step)
  if given.loss and getmetatable(given.optim) ~= optimizer.Optimizer then
    core.error("job: loss needs optim, such as optim.adamw { lr = 1e-3 }")
  end
  if type(given.data) ~= "table" or type(given.data.feeds) ~= "table" then
    core.error("job: data must come from sgl.data (data.text, data.tokens, data.batches)")
  end
end

--- Declares what is to be trained and how. `loss(batch)` returns a mean of rank 0 and, if it likes, the number of
--- targets that it is a mean over. `step(batch)`, in place of loss and optim, updates by itself (optimizer:minimize,
--- sgl.update) and returns { name = tensor of rank 0 } to show and to log, or nothing. `context`: the most positions of
--- a generation. `ema`: evaluate, and generate, with the averages that the optimizer keeps.
---@param given { model: sgl.module, loss: function?, step: function?, data: table, optim: sgl.optimizer|sgl.optimizer[]?, plan: table?, steps: integer?, eval_every: integer?, eval_batches: integer?, save_every: integer?, keep: integer?, seed: integer?, context: integer?, ema: boolean? }
function job.new(given)
  if type(given) ~= "table" then core.error("job: give a table { model =, loss =, data =, optim = }") end
  check_fields(given)
  local self = { here = core.here() }
  for key, value in pairs(given) do self[key] = value end
  for key, text in pairs(core.settings()) do
    local field = key:match "^job%.(.*)$"
    if field and field ~= "ema" and not contains(numbers, field) then
      core.error(("job: there is no number '%s'%s"):format(field, names_of.hint(field, numbers)))
    end
    local along = key:match "^dim%.(.*)$"
    if along and not contains(dims_of.names(), along) then
      core.error(("job: there is no dim '%s'%s"):format(along, names_of.hint(along, dims_of.names())))
    end
    if field == "ema" then
      self.ema = text
      if flags[text] ~= nil then self.ema = flags[text] end
    elseif field then
      self[field] = tonumber(text) or text
    end
  end
  for _, name in ipairs(numbers) do
    if self[name] ~= nil then
      local whole = math.type(self[name]) == "float" and math.tointeger(self[name]) -- 1e4 is a number of steps
      self[name] = whole or self[name]
      check.value("job", name, name == "context" and "size" or "count", self[name])
    end
  end
  local plan = given.plan
  if plan ~= nil and type(plan) ~= "table" then
    core.error(("job: plan must be sgl.plan { ... } or a table of its fields, not %s"):format(check.show(plan)))
  end
  self.plan = plan and getmetatable(plan) ~= nil and plan or make_plan(plan)
  if self.ema ~= nil then check.value("job", "ema", "flag", self.ema) end
  self.steps = self.steps or 1000
  self.bounds, self.pads, self.last = {}, {}, {}
  self.parameters, self.buffers = given.model:parameters(), given.model:buffers()
  if #self.parameters == 0 then core.error("job: the model has no parameters") end
  return core.job(setmetatable(self, Job))
end

local function context_of(self, mode)
  return { mode = mode, dtype = self.plan.precision == "fp64" and "f64" or "f32", steps = self.steps,
    wanted_context = self.context, has_loss = self.loss ~= nil }
end

-- The extents of the dims where none are asked for: the largest.
local function largest(self)
  local extents = {}
  for name, one in pairs(self.data.dims or {}) do extents[name] = one.dim.largest end
  return extents
end

local function feed_names(self)
  local names = {}
  for name in pairs(self.data.feeds) do names[#names + 1] = name end
  table.sort(names)
  return names
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
  local batch, names, fed = {}, feed_names(self), trace.context().fed
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
    job.trace_train(self)
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
function job.trace_init(self)
  local learnt = { { optimizer = self.optim, parameters = self.parameters } }
  if self.step then
    job.trace_train(self)
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

-- The graph of a choice of buckets, held to the promise that padding changes no number.
local function with_extents(self, which, trace_graph, extents)
  local graph, dims = trace_graph(self, extents), self.data.dims or {}
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
function job.trace_train(self, extents) return with_extents(self, "train", traced_train, extents or largest(self)) end

--- Loss of one batch, nothing learnt. Fetches: loss_sum, count, and log.NAME of what sgl.log named. nil for jobs with a
--- step of their own.
---@param extents table<string, integer>? of the dims; default: the largest
function job.trace_eval(self, extents) return with_extents(self, "eval", traced_eval, extents or largest(self)) end

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
function job.trace_decode(self)
  local context = context_of(self, "decode")
  context.context, context.generating = job.number(self, "context"), true
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
  local context, length = context_of(self, "eval"), job.number(self, "context")
  if not length or length < 2 then return nil end
  context.generating, context.averages = true, averages_of(self)
  return core.trace(name, function()
    trace.run(context, function() next_logits(self, math.min(length, most)) end)
  end)
end

--- A few tokens, to compare with as many steps of "decode"; a text as long as the context.
function job.trace_few(self) return trace_text(self, "few", 8) end
function job.trace_text(self) return trace_text(self, "text", math.maxinteger) end

--- What a model is without its run: each parameter and buffer by its path, adapters merged into the weights that they
--- adapt, averages in the place of parameters where the job says so.
function job.trace_export(self)
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

---- what else the C side asks ----

function job.plan_fields(self) return self.plan:fields(self.parameters) end

--- { paths, format, vocab, seq, batch, seed, held_out } of token data, or nil.
function job.data_config(self)
  if not self.data.paths then return nil end
  self.data.seed = self.data.seed or math.tointeger(self.seed or 0)
  return self.data
end

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
        core.error(("batch: the data declares no feed '%s'%s"):format(name, names_of.hint(name, feed_names(self))),
          self.here)
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
function job.next_batch(self, cursor, is_eval)
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
function job.choose(self, cursor, is_eval)
  local dims = self.data.dims or {}
  if next(dims) == nil then return "" end
  local made, tokens = made_batch(self, cursor, is_eval), nil
  if made.batch == nil then
    self.waiting = nil
    return nil
  end
  if not made.lengths then return dims_of.text(largest(self)) end -- what is no table is told of when it is fed
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
function job.choice(self, index)
  local extents = dims_of.choices(self.data.dims or {})[index + 1]
  if not extents then return nil end
  local text = dims_of.text(extents)
  self.choices = self.choices or {}
  self.choices[text] = extents
  return text
end

--- The graph of a choice that choose or choice gave.
---@param which "train"|"eval"
---@param text string
function job.trace_choice(self, which, text)
  return job["trace_" .. which](self, (self.choices or {})[text])
end

-- Whether losses are nats per token: the data are tokens, each with the next one as its target.
local function is_of_tokens(data)
  local tokens, targets = data.feeds.tokens, data.feeds.targets
  if data.vocab then return true end
  if not tokens or not targets or #tokens.dims ~= #targets.dims then return false end
  for i, extent in ipairs(tokens.dims) do
    if targets.dims[i] ~= extent then return false end
  end
  return tokens.dtype:find "^[iu]" ~= nil and targets.dtype:find "^[iu]" ~= nil
end

--- A number of the job, or nil. context: positions of the decode caches; bytes: 1 where tokens are the bytes of a text;
--- eval_batches: of Lua data 32 unless the job says otherwise, else all; counts_targets: 1 where the traced loss is a
--- mean over so many targets; of_tokens: 1 where these are tokens; dims: how many dims with buckets its feeds have.
---@param key string
---@return number?
function job.number(self, key)
  if key == "context" then
    local name, one = next(self.data.dims or {})
    local longest = name and next(self.data.dims, name) == nil and one.dim.largest or nil
    return self.context or self.data.seq or longest
  end
  if key == "dims" then
    local count = 0
    for _ in pairs(self.data.dims or {}) do count = count + 1 end
    return count
  end
  if key == "bytes" then return self.data.format == "bytes" and 1 or 0 end
  if key == "counts_targets" then return self.counts_targets and 1 or 0 end
  if key == "of_tokens" then return self.counts_targets and is_of_tokens(self.data) and 1 or 0 end
  if key == "eval_batches" and self.data.next and not self[key] then return 32 end -- Lua may give batches without end
  local value = self[key]
  return type(value) == "number" and value or nil
end

return job
