--- sgl.job: what a script returns, and the graphs that are traced from it.
--- Comes in: { model, loss, data, optim, plan } or { model, step, data, plan }. Goes out: a job; the C side asks it
--- for its
--- graphs by name (trace_init, trace_train, trace_eval, trace_decode), its plan, its data and its numbers.
--- Invariant: a graph is traced anew each time it is asked for, and nothing of one trace reaches another.

local check = require "sgl.check"
local core = require "sgl.core"
local base = require "sgl.nn.module"
local loss_module = require "sgl.nn.loss"
local make_plan = require "sgl.plan"
local ops = require "sgl.ops"
local optimizer = require "sgl.optim.optimizer"
local trace = require "sgl.trace"

local fields = {
  "model", "loss", "step", "data", "optim", "plan", "steps", "eval_every", "eval_batches", "save_every", "keep", "seed",
  "context",
}

-- Those that `--set job.FIELD=N` may change.
local numbers = { "steps", "eval_every", "eval_batches", "save_every", "keep", "seed", "context" }

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
      core.error(("job: there is no field '%s'%s"):format(tostring(key), core.hint(tostring(key), fields)))
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

--- Declares what is to be trained and how.
---@param given { model: sgl.module, loss: function?, step: function?, data: table, optim: sgl.optimizer|sgl.optimizer[]?, plan: table?, steps: integer?, eval_every: integer?, eval_batches: integer?, save_every: integer?, keep: integer?, seed: integer?, context: integer? }
function job.new(given)
  if type(given) ~= "table" then core.error("job: give a table { model =, loss =, data =, optim = }") end
  check_fields(given)
  local self = {}
  for key, value in pairs(given) do self[key] = value end
  for key, text in pairs(core.settings()) do
    local field = key:match "^job%.(.+)$"
    if field and not contains(numbers, field) then
      core.error(("job: there is no number '%s'%s"):format(field, core.hint(field, numbers)))
    end
    if field then self[field] = tonumber(text) or text end
  end
  for _, name in ipairs(numbers) do
    if self[name] ~= nil then
      local whole = math.type(self[name]) == "float" and math.tointeger(self[name]) -- 1e4 is a number of steps
      self[name] = whole or self[name]
      check.value("job", name, name == "context" and "size" or "count", self[name])
    end
  end
  self.plan = given.plan or make_plan()
  self.steps = self.steps or 1000
  self.parameters = given.model:parameters()
  if #self.parameters == 0 then core.error("job: the model has no parameters") end
  return core.job(setmetatable(self, Job))
end

local function context_of(self, mode)
  return { mode = mode, dtype = self.plan.precision == "fp64" and "f64" or "f32", steps = self.steps }
end

local function optimizers(self)
  if self.optim == nil then return {} end
  return getmetatable(self.optim) == optimizer.Optimizer and { self.optim } or self.optim
end

-- The declared feeds as tensors of the graph being traced.
local function batch_of(self)
  local batch = {}
  local names = {}
  for name in pairs(self.data.feeds) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local feed = self.data.feeds[name]
    batch[name] = core.input("feed", name, feed.dtype, feed.dims)
  end
  if self.data.derive then self.data.derive(batch) end
  return batch
end

local function scalar(name) return core.input("feed", name, "i64", {}) end

---- the graphs ----

--- Every parameter and optimizer state gets its first value. Feed: seed.
function job.trace_init(self)
  if self.step then job.trace_train(self) end -- tells which parameters each optimizer learns
  return core.trace("init", function()
    local context = context_of(self, "init")
    trace.run(context, function()
      local seed = scalar "seed"
      for _, parameter in ipairs(self.parameters) do
        local tensor = parameter()
        local path = parameter.path
        local value = core.scope(path, parameter.init, parameter.dims, context.dtype, seed, core.hash(path))
        if not core.is_tensor(value) or tostring(value) ~= tostring(tensor) then
          core.error(("init of %s gives %s, the parameter is %s"):format(path, tostring(value), tostring(tensor)))
        end
        core.update(parameter.path, value)
      end
      for _, optim in ipairs(optimizers(self)) do
        optim:states(self.step and optim.learnt or self.parameters, function(path, dims)
          core.input("state", path, context.dtype, dims)
          core.update(path, ops.zeros(dims, context.dtype))
        end)
      end
    end)
  end)
end

-- The mean of the loss function, and the count it is a mean over (1 when the function gives none).
local function traced_loss(self, batch)
  local mean, count = self.loss(batch)
  if not core.is_tensor(mean) or core.rank(mean) ~= 0 then
    core.error(("loss: the function must return a tensor of rank 0, it returned %s"):format(tostring(mean)))
  end
  return mean, count or core.constant(1, core.dtype(mean))
end

--- One optimizer step. Feeds: the batch, step, seed. Fetches: loss, lr, grad_norm, and what sgl.log named.
function job.trace_train(self)
  return core.trace("train", function()
    local context = context_of(self, "train")
    trace.run(context, function()
      context.seed, context.step = scalar "seed", scalar "step"
      local batch = batch_of(self)
      if self.step then
        for name, value in pairs(self.step(batch) or {}) do trace.log(name, value) end
      else
        local loss = traced_loss(self, batch)
        core.fetch("loss", loss)
        local numbers = self.optim:minimize(loss, self.model)
        core.fetch("lr", numbers.lr)
        core.fetch("grad_norm", numbers.grad_norm)
      end
      table.sort(context.logs, function(a, b) return a.name < b.name end)
      for _, entry in ipairs(context.logs) do core.fetch(entry.name, entry.value) end
    end)
  end)
end

--- Loss of one batch, nothing learnt. Fetches: loss_sum and count. nil for jobs with a step of their own.
function job.trace_eval(self)
  if not self.loss then return nil end
  return core.trace("eval", function()
    local context = context_of(self, "eval")
    trace.run(context, function()
      local mean, count = traced_loss(self, batch_of(self))
      core.fetch("loss_sum", mean * count)
      core.fetch("count", count)
    end)
  end)
end

--- Logits of the next token. Feeds: tokens i32 [1, 1], position i64 []. Fetch: logits [1, vocab].
function job.trace_decode(self)
  local context = context_of(self, "decode")
  context.context = self.context or self.data.seq
  if not context.context then return nil end
  return core.trace("decode", function()
    trace.run(context, function()
      context.position = scalar "position"
      local logits = self.model(core.input("feed", "tokens", "i32", { 1, 1 }))
      if getmetatable(logits) == loss_module.Logits then logits = logits:tensor() end
      if not core.is_tensor(logits) or core.rank(logits) ~= 3 then
        core.error(("decode: the model must give logits [1, 1, vocab], it gave %s"):format(tostring(logits)))
      end
      core.fetch("logits", ops.reshape(logits, 1, ops.shape(logits, 2)))
    end)
  end)
end

---- what else the C side asks ----

function job.plan_fields(self) return self.plan:fields() end

--- { paths, format, vocab, seq, batch, seed, held_out } of token data, or nil.
function job.data_config(self)
  if not self.data.paths then return nil end
  self.data.seed = self.data.seed or math.tointeger(self.seed or 0)
  return self.data
end

--- One batch of Lua data: { feed = flat list }, or nil past the last.
---@param cursor integer
---@param is_eval boolean
---@return table?
function job.next_batch(self, cursor, is_eval)
  if not self.data.next then return nil end
  return self.data.next(cursor, is_eval)
end

--- A number of the job, or nil. context: positions of the decode caches; bytes: 1 where tokens are the bytes of a text.
---@param key string
---@return number?
function job.number(self, key)
  if key == "context" then return self.context or self.data.seq end
  if key == "bytes" then return self.data.format == "bytes" and 1 or 0 end
  local value = self[key]
  return type(value) == "number" and value or nil
end

return job
