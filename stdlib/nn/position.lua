--- nn.position: learnt position embeddings, added to x.
--- Comes in: x [batch, t, dim]. Goes out: x + weight[position .. position + t]. Weight [context, dim]; in a decode step
--- the position is that of the step.

local core = require "sgl.core"
local check = require "sgl.check"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

---@param context integer longest sequence
---@param dim integer
---@param options { init: function? }? default: normal with std 0.02
---@return sgl.module
return function(context, dim, options)
  check.value("position", "context", "size", context)
  check.value("position", "dim", "size", dim)
  options = check.options("position", options, { init = "call?" })
  local weight = base.parameter { context, dim, init = options.init or initial.normal(0.02) }
  return base.module(("position(%d, %d)"):format(context, dim), { weight = weight }, function(x)
    local length = ops.shape(x, 1)
    if length > context then
      core.error(("position: a sequence of %d is longer than the %d learnt positions"):format(length, context))
    end
    local wanted = trace.context().wanted_context or 0
    if wanted > context then
      core.error(("position: the job's context (%d) is longer than the %d learnt positions"):format(wanted, context))
    end
    local rows = weight()
    if trace.mode() == "decode" then
      rows = ops.dynamic_slice(rows, trace.position(), 0, length)
    else -- of the whole table too: in the traces of a dim's buckets the same ops stand
      rows = ops.slice(rows, 0, 0, length)
    end
    return x + rows
  end)
end
