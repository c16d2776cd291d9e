--- Learning-rate schedules.
--- Comes in: numbers. Goes out: a function of (step, steps): step the traced number of the step, f64 [], from 1;
--- steps the
--- length of the run. It returns the rate as f64 []: a schedule is part of the graph, so that a change of rate is no
--- new
--- compile. Everywhere s = step - 1 counts from 0.

local core = require "sgl.core"
local ops = require "sgl.ops"

local schedule = {}

local function number(where, options, name, otherwise)
  local value = options[name]
  if value == nil then value = otherwise end
  if type(value) ~= "number" then
    core.error(("%s: %s must be a number, not %s"):format(where, name, tostring(value)))
  end
  return value
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
function schedule.constant(rate)
  if type(rate) ~= "number" then core.error("optim.constant(rate): rate must be a number, not " .. tostring(rate)) end
  return function() return core.constant(rate, "f64") end
end

--- From peak to final in a straight line, after a linear warm-up.
---@param options { peak: number, final: number?, warmup: integer?, steps: integer? } final: default 0
function schedule.linear(options)
  local peak, final = number("optim.linear", options, "peak"), number("optim.linear", options, "final", 0)
  local warmup = number("optim.linear", options, "warmup", 0)
  return function(step, steps)
    local s = step - 1
    return warmed(s, warmup, peak, progress(s, warmup, options.steps or steps) * (final - peak) + peak)
  end
end

--- From peak to final along half a cosine, after a linear warm-up (Loshchilov, Hutter, arXiv:1608.03983).
---@param options { peak: number, final: number?, warmup: integer?, steps: integer? } final: default peak / 10
function schedule.warmup_cosine(options)
  local peak = number("optim.warmup_cosine", options, "peak")
  local final = number("optim.warmup_cosine", options, "final", peak / 10)
  local warmup = number("optim.warmup_cosine", options, "warmup", 0)
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
function schedule.wsd(options)
  local peak, final = number("optim.wsd", options, "peak"), number("optim.wsd", options, "final", 0)
  local warmup, decay = number("optim.wsd", options, "warmup", 0), number("optim.wsd", options, "decay")
  return function(step, steps)
    local total = options.steps or steps
    local s = step - 1
    return warmed(s, warmup, peak, progress(s, total - decay, total) * (final - peak) + peak)
  end
end

--- A number is a constant schedule.
function schedule.of(rate)
  if type(rate) == "number" then return schedule.constant(rate) end
  if type(rate) ~= "function" then
    core.error("optimizer: lr must be a number or a schedule such as optim.warmup_cosine{...}")
  end
  return rate
end

return schedule
