--- sgl.job: what a script returns.
--- Comes in: { model, loss, data, optim, plan } or { model, step, data, plan }. Goes out: a job; the C side asks it for
--- its graphs by name (job.trace_train and its kin, which sgl.h tells of: graphs.lua), its batches (batches.lua), its
--- plan, its data and its numbers.
--- Invariant: whatever the C side asks is a function of this table that takes the job first.

local batches = require "sgl.job.batches"
local check = require "sgl.check"
local core = require "sgl.core"
local dims_of = require "sgl.dim"
local graphs = require "sgl.job.graphs"
local base = require "sgl.nn.module"
local make_plan = require "sgl.plan"
local names_of = require "sgl.names"
local optimizer = require "sgl.optim.optimizer"

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
for _, part in ipairs { graphs, batches } do
  for name, call in pairs(part) do job[name] = call end
end

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

-- What `--set` says of the job, and numbers as they should be.
local function set_fields(self)
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
  set_fields(self)
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

---- what else the C side asks ----

function job.plan_fields(self) return self.plan:fields(self.parameters, self.buffers) end

--- { paths, format, vocab, seq, batch, seed, held_out } of token data, or nil.
function job.data_config(self)
  if not self.data.paths then return nil end
  self.data.seed = self.data.seed or math.tointeger(self.seed or 0)
  return self.data
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
  if key == "context" then return graphs.positions(self) end
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
