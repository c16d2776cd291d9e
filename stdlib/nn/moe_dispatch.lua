--- The experts of nn.moe at work: tokens to experts and back.
--- Comes in: the layer's options and weights, x [batch, t, dim], choice i32 and gates [batch, t, top_k]; a choice of
--- `experts` is none. Goes out: y [batch, t, dim], and with a capacity which choices were kept [batch, top_k * t].
--- Odd invariant: nothing as large as tokens * experts * capacity is made: choices are sorted by expert, an index per
--- slot says which token it takes, an index per choice which slot gives it back.

local ops = require "sgl.ops"
local trace = require "sgl.trace"

-- down(activation(gate(x)) * up(x)) of tokens [experts, ..., dim], with weights [experts, ...].
local function expert_products(activation, weights, tokens)
  local gate = ops.einsum("egcd,ehd->egch", tokens, weights.gate())
  local up = ops.einsum("egcd,ehd->egch", tokens, weights.up())
  return ops.einsum("egch,edh->egcd", activation(gate) * up, weights.down())
end

-- Every expert on every token, one product each way; gates [batch, t, experts] are 0 where it was not chosen.
local function dense(options, activation, weights, x, choice, gates)
  local experts, hidden, dim = options.experts, options.hidden, options.dim
  local batch, length = ops.shape(x, 0), ops.shape(x, 1)
  local function wide(weight)
    local y = ops.linear(x, ops.reshape(weight(), experts * hidden, dim))
    return ops.reshape(y, batch, length, experts, hidden)
  end
  local all = ops.add_along(choice, gates, -1, experts)
  local h = activation(wide(weights.gate)) * wide(weights.up) * ops.unsqueeze(all, -1)
  return ops.einsum("bteh,edh->btd", h, weights.down())
end

-- Rows of x [groups, n, dim] at indices [groups, k]; outside of x: zeros.
local function rows(x, indices)
  local groups, count, dim = ops.shape(x, 0), ops.shape(indices, 1), ops.shape(x, 2)
  return ops.take_along(x, ops.broadcast(ops.unsqueeze(indices, -1), groups, count, dim), 1)
end

-- Slots of the choices [groups, n], experts * capacity and -1 for what is dropped or none.
local function slots_of(flat, experts, capacity)
  local groups, n = ops.shape(flat, 0), ops.shape(flat, 1)
  local order = ops.cast(ops.argsort(flat, 1), "i32")
  local place_in_order = ops.add_along(order, ops.iota({ groups, n }, 1, "i32"), 1, n)
  local counts = ops.add_along(flat, ops.ones({ groups, n }, "i32"), 1, experts)
  local starts = ops.cumsum(counts, 1, { exclusive = true })
  local place = place_in_order - ops.take_along(starts, flat, 1)
  local kept = ops.logical_and(ops.less(flat, experts), ops.less(place, capacity))
  return ops.select(kept, flat * capacity + place, ops.constant(-1, "i32")), kept
end

local function by_capacity(options, activation, weights, x, choice, gates)
  local experts, top_k, dim = options.experts, options.top_k, options.dim
  local batch, length = ops.shape(x, 0), ops.shape(x, 1)
  local groups, n = batch, length
  if options.group == "batch" then groups, n = 1, batch * length end
  local capacity = math.min(math.ceil(options.capacity * n * top_k / experts), n)
  if trace.context().generating then capacity = n end -- token by token nothing is over
  -- choice-major: all first choices stand before all second ones
  local function flatten(y)
    return ops.reshape(ops.transpose(ops.reshape(y, groups, n, top_k), 0, 2, 1), groups, top_k * n)
  end
  local slots, kept = slots_of(flatten(choice), experts, capacity)
  local numbers = ops.iota({ groups, top_k * n }, 1, "i32") % n + 1
  local takes = ops.add_along(slots, numbers, 1, experts * capacity) - 1
  local taken = ops.reshape(rows(ops.reshape(x, groups, n, dim), takes), groups, experts, capacity, dim)
  local made = expert_products(activation, weights, ops.transpose(taken, 1, 0, 2, 3))
  local back = ops.reshape(ops.transpose(made, 1, 0, 2, 3), groups, experts * capacity, dim)
  local y = rows(back, slots) * ops.unsqueeze(flatten(gates), -1)
  return ops.reshape(ops.sum(ops.reshape(y, groups, top_k, n, dim), 1), batch, length, dim), kept
end

---@param options table those of nn.moe
---@param activation fun(x: sgl.tensor): sgl.tensor
---@param weights table<string, sgl.parameter>
---@param x sgl.tensor
---@param choice sgl.tensor
---@param gates sgl.tensor
---@return sgl.tensor y
---@return sgl.tensor? kept
return function(options, activation, weights, x, choice, gates)
  if not options.capacity then return dense(options, activation, weights, x, choice, gates) end
  return by_capacity(options, activation, weights, x, choice, gates)
end
