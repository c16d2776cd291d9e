--- nn.dropout: sets elements to zero with probability `rate` while training and scales the others by 1 / (1 - rate)
--- (Srivastava et al., JMLR 15, 2014).
--- Comes in: x of any shape. Goes out: the same shape; x itself when not training. The mask depends on the run's seed,
--- the step, the module's path and the element's place in the whole batch, and on nothing else.

local core = require "sgl.core"
local check = require "sgl.check"
local dims_of = require "sgl.dim"
local base = require "sgl.nn.module"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

---@param rate number 0 <= rate < 1
---@return sgl.module
return function(rate)
  check.value("dropout", "rate", "share", rate)
  return base.module(("dropout(%g)"):format(rate), {}, function(x)
    if rate == 0 or trace.mode() ~= "train" then return x end
    local context = trace.context()
    local start, id = core.constant(0, "i64"), trace.random_id()
    local uniform = dims_of.draw(x, function(dims)
      return ops.random_uniform(context.seed, context.step, start, id, dims, core.dtype(x))
    end)
    return ops.select(ops.less(uniform, rate), core.constant(0, core.dtype(x)), x * (1 / (1 - rate)))
  end)
end
