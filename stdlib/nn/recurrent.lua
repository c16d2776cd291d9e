--- What nn.lstm and nn.gru share: a cell run along the sequence, and its state kept while generating.
--- Comes in: the name of the layer, its sizes, how many gates it has, and the cell: cell(weights, projected, state) ->
--- state, where projected [batch, gates * hidden] is what the input gives and state holds h [batch, hidden] and maybe
--- more. Goes out: a module: x [batch, t, input] -> h of all places [batch, t, hidden], and the last state.
--- Odd invariant: the product with the input is made for all places at once, only that with the state place by place.

local core = require "sgl.core"
local check = require "sgl.check"
local dims_of = require "sgl.dim"
local base = require "sgl.nn.module"
local cache = require "sgl.nn.cache"
local control = require "sgl.control"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

local recurrent = {}

---@class sgl.recurrent.options
---@field init function? of the weights; default: uniform in -hidden^-0.5 .. hidden^-0.5, as PyTorch's
---@field reverse boolean? from the last place to the first

-- The state before the first place: given, or zeros; while generating what the step before has left. And what leaves
-- the one behind the last place.
local function first_state(where, names, given, batch, hidden, dtype)
  local state, keepers, wanted = {}, {}, ("%s[%d,%d]"):format(dtype, batch, hidden)
  for _, name in ipairs(names) do
    local value = given and given[name]
    if value ~= nil and (not core.is_tensor(value) or tostring(value) ~= wanted) then
      core.error(("%s: state %s must be %s, not %s"):format(where, name, wanted, check.show(value)))
    end
    state[name], keepers[name] = cache.state(name, value or ops.zeros({ batch, hidden }, dtype))
  end
  return state, function(last)
    for _, name in ipairs(names) do keepers[name](last[name]) end
  end
end

-- Where a row is over, its state stays as it was: the last one is that of its last place, in either direction.
local function kept(mask, after, before)
  local state = {}
  for name, value in pairs(after) do state[name] = ops.select(mask, value, before[name]) end
  return state
end

--- A module of the weights wx [gates * hidden, input], wh [gates * hidden, hidden] and the biases.
---@param where string the layer
---@param sizes { input: integer, hidden: integer, gates: integer }
---@param options sgl.recurrent.options?
---@param biases fun(init: function): table<string, sgl.parameter>
---@param names string[] of what the state holds, h first
---@param cell fun(weights: table<string, sgl.tensor>, projected: sgl.tensor, state: table<string, sgl.tensor>): table<string, sgl.tensor>
---@return sgl.module called as layer(x, state): h of all places, and the last state
function recurrent.new(where, sizes, options, biases, names, cell)
  local input, hidden, gates = sizes.input, sizes.hidden, sizes.gates
  check.value(where, "input", "size", input)
  check.value(where, "hidden", "size", hidden)
  options = check.options(where, options, { init = "call?", reverse = "flag?" })
  local init = options.init or initial.uniform(hidden ^ -0.5)
  local wx = base.parameter { gates * hidden, input, init = init }
  local wh = base.parameter { gates * hidden, hidden, init = init }
  local children = biases(init)
  children.wx, children.wh = wx, wh
  return base.module(("%s(%d, %d)"):format(where, input, hidden), children, function(x, state)
    if core.rank(x) ~= 3 or ops.shape(x, 2) ~= input then
      core.error(("%s: x must be [batch, t, %d], not %s"):format(where, input, tostring(x)))
    end
    if trace.mode() == "decode" and options.reverse then
      core.error(where .. ": what comes from the last place to the first cannot generate token by token")
    end
    local weights = {}
    for name, parameter in pairs(children) do weights[name] = parameter() end
    local along = ops.transpose(ops.linear(x, wx(), weights.bx), 1, 0, 2) -- [t, batch, gates * hidden]
    local first, keep = first_state(where, names, state, ops.shape(x, 0), hidden, core.dtype(x))
    local mask = dims_of.mask_of(x)
    local inputs = { projected = along, mask = mask and ops.unsqueeze(ops.transpose(mask, 1, 0), -1) }
    local last, h = control.scan(function(before, given)
      local after = cell(weights, given.projected, before)
      if mask then after = kept(given.mask, after, before) end
      return after, after.h
    end, first, inputs, { reverse = options.reverse })
    keep(last)
    return ops.transpose(h, 1, 0, 2), last
  end)
end

return recurrent
