--- optim.constant, optim.linear, optim.cosine, optim.warmup_cosine, optim.wsd: learning-rate schedules.
--- Comes in: numbers. Goes out: a function of (step, steps): step the traced number of the step, f64 [], from 1; steps
--- the length of the run. It returns the rate as f64 []: a schedule is part of the graph, so that a change of rate is
--- no new compile. Everywhere s = step - 1 counts from 0.

local check = require "sgl.check"
local core = require "sgl.core"
local ops = require "sgl.ops"

local schedule = {}

local known = { peak = "rate", final = "rate?", warmup = "count?", steps = "size?" }

-- The options of a schedule: peak, final, warmup. A warm-up need not fit into the job's steps, which a short trial
-- cuts, but into the schedule's own.
local function read(where, options, final, fields)
  check.options(where, options, fields or known)
  local warmup, decay = options.warmup or 0, fields and options.decay or 0
  if options.steps and warmup + decay > options.steps then
    local spent = fields and ("warmup and decay (%d + %d)"):format(warmup, decay) or ("warmup (%d)"):format(warmup)
    core.error(("%s: %s: more than steps (%d)"):format(where, spent, options.steps))
  end
  return options.peak, options.final or final or options.peak / 10, warmup
end

-- Linear warm-up over `warmup` steps from peak / warmup to peak, then what `after` says.
local function warmed(s, warmup, peak, after)
  if warmup <= 0 then return after end
  return ops.select(ops.less(s, warmup), (s + 1) * (peak / warmup), after)
end

-- (s - from) / (to - from), held within 0..1.
local function progress(s, from, to) return ops.clamp((s - from) / math.max(to - from, 1), 0, 1) end

--- The same rate at every step.
---@param rate number
---@return fun(): sgl.tensor
function schedule.constant(rate)
  check.value("optim.constant", "rate", "rate", rate)
  return function() return core.constant(rate, "f64") end
end

--- From peak to final in a straight line, after a linear warm-up.
---@param options { peak: number, final: number?, warmup: integer?, steps: integer? } final: default 0
---@return fun(step: sgl.tensor, steps: integer): sgl.tensor
function schedule.linear(options)
  local peak, final, warmup = read("optim.linear", options, 0)
  return function(step, steps)
    local s = step - 1
    return warmed(s, warmup, peak, progress(s, warmup, options.steps or steps) * (final - peak) + peak)
  end
end

--- From peak to final along half a cosine, after a linear warm-up (Loshchilov, Hutter, arXiv:1608.03983).
---@param options { peak: number, final: number?, warmup: integer?, steps: integer? } final: default peak / 10
---@return fun(step: sgl.tensor, steps: integer): sgl.tensor
function schedule.warmup_cosine(options)
  local peak, final, warmup = read("optim.warmup_cosine", options)
  return function(step, steps)
    local s = step - 1
    local q = progress(s, warmup, options.steps or steps)
    return warmed(s, warmup, peak, (ops.cos(q * math.pi) + 1) * (0.5 * (peak - final)) + final)
  end
end

--- The same with no warm-up unless given.
schedule.cosine = schedule.warmup_cosine

--- Warm-up, stable, decay (Hu et al., arXiv:2404.06395): peak until the last `decay` steps, then linearly to final.
---@param options { peak: number, warmup: integer?, decay: integer, final: number?, steps: integer? } final: default 0
---@return fun(step: sgl.tensor, steps: integer): sgl.tensor
function schedule.wsd(options)
  local fields = { peak = "rate", final = "rate?", warmup = "count?", decay = "count", steps = "size?" }
  local peak, final, warmup = read("optim.wsd", options, 0, fields)
  local decay = options.decay
  return function(step, steps)
    local total = options.steps or steps
    local s = step - 1
    return warmed(s, warmup, peak, progress(s, total - decay, total) * (final - peak) + peak)
  end
end

--- A number is a constant schedule.
---@param where string the optimizer
---@param rate number|function
---@return function
function schedule.of(where, rate)
  if type(rate) == "function" then return rate end
  if type(rate) ~= "number" then
    core.error(where .. ": lr must be a number or a schedule such as optim.warmup_cosine { peak = 1e-3 }")
  end
  check.value(where, "lr", "rate", rate)
  return schedule.constant(rate)
end

return schedule
