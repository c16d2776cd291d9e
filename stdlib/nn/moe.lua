--- nn.moe: a feed-forward layer of many experts, of which each token sees the top_k that a router gives it (Shazeer et
--- al., arXiv:1701.06538; Fedus et al., arXiv:2101.03961).
--- Comes in: x [batch, t, dim] and, when called, `mask` bool [batch, t] (false: padding, seen by no expert; that of
--- an sgl.dim is known by itself). Goes out:
--- the shape of x: the sum of gate * expert(x), expert(x) = down(activation(gate(x)) * up(x)). Weights router [experts,
--- dim], gate and up [experts, hidden, dim], down [experts, dim, hidden]; buffer bias [experts].
--- Without `capacity` every expert computes every token, and what is not chosen counts nothing: exact, and of the cost
--- of experts / top_k as many products. With it an expert takes at most ceil(capacity * tokens * top_k / experts) of a
--- group's tokens, first choices first and in their order; what is over is dropped.
--- What couples tokens is `group`: "sequence" (default), each row of x for itself, or "batch". The capacity counts in
--- it, and the balance is of it.

local core = require "sgl.core"
local activation_of = require "sgl.nn.activation"
local base = require "sgl.nn.module"
local check = require "sgl.check"
local dims_of = require "sgl.dim"
local dispatch = require "sgl.nn.moe_dispatch"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

local known = {
  dim = "size", hidden = "size", experts = "size", top_k = "size", capacity = "positive?", group = "text?",
  score = "text?", normalize = "flag?", balance = "rate?", z_loss = "rate?", bias_rate = "rate?", activation = "text?",
  report = "flag?", init = "call?", init_out = "call?",
}

local function one_of(name, value, names)
  for _, one in ipairs(names) do
    if one == value then return value end
  end
  core.error(("moe: %s must be '%s', not '%s'"):format(name, table.concat(names, "' or '"), value))
end

local function read(options)
  options = check.options("moe", options, known)
  if options.top_k > options.experts then
    core.error(("moe: top_k (%d) is more than the experts (%d)"):format(options.top_k, options.experts))
  end
  one_of("score", options.score or "softmax", { "softmax", "sigmoid" })
  one_of("group", options.group or "sequence", { "sequence", "batch" })
  return options
end

-- [batch, t]: 1 where there is a token, 0 where there is padding; nil: tokens everywhere.
local function present_of(call, x, dtype, capacity)
  local padded = dims_of.along(x, 1)
  if padded and capacity then
    local what = "moe: a capacity counts all places of a sequence, and those of '%s' are padded: leave capacity out"
    core.error(what:format(padded.dim.name))
  end
  local mask = check.options("moe", call, { mask = "any?" }).mask or dims_of.mask_of(x)
  if not mask then return nil end
  if not core.is_tensor(mask) or core.dtype(mask) ~= "bool" or core.rank(mask) ~= 2 or
      ops.shape(mask, 0) ~= ops.shape(x, 0) or ops.shape(mask, 1) ~= ops.shape(x, 1) then
    core.error(("moe: mask must be bool [%d, %d], not %s"):format(ops.shape(x, 0), ops.shape(x, 1), check.show(mask)))
  end
  return ops.cast(mask, dtype)
end

---- choosing ----

-- scores [batch, t, experts]; choice i32 and gates [batch, t, top_k], no expert (its number: experts) for padding.
local function route(options, logits, present, bias)
  local scores = options.score == "sigmoid" and ops.sigmoid(logits) or ops.softmax(logits)
  local _, choice = ops.top_k(bias and ops.stop_gradient(scores) + bias or scores, options.top_k)
  local gates = ops.take_along(scores, choice, -1)
  local normalize = options.normalize
  if normalize == nil then normalize = options.top_k > 1 end
  if normalize then gates = gates / (ops.sum(gates, -1, true) + 1e-20) end
  choice = ops.cast(choice, "i32")
  if present then
    local held = ops.unsqueeze(present, -1)
    choice = ops.select(ops.less(0, held), choice, core.constant(options.experts, "i32"))
    gates = gates * held
  end
  return scores, choice, gates
end

-- How many of a group's choices go to each expert [batch, experts], and how many tokens it has [batch, 1].
local function counts_of(options, choice, present, dtype)
  local batch, length = ops.shape(choice, 0), ops.shape(choice, 1)
  local flat = ops.reshape(choice, batch, length * options.top_k)
  local counts = ops.cast(ops.add_along(flat, ops.ones(ops.shape(flat), "i32"), 1, options.experts), dtype)
  local tokens = present and ops.sum(present, 1, true) or ops.broadcast(core.constant(length, dtype), batch, 1)
  return counts, tokens
end

---- what keeps the experts even ----

-- experts * sum of (share of the choices) * (mean probability): 1 where all are even (arXiv:2101.03961, eq. 4).
local function balance_loss(options, scores, counts, tokens, present)
  local total = ops.sum(scores, -1, true)
  local probabilities = scores / (total + 1e-20)
  if present then probabilities = probabilities * ops.unsqueeze(present, -1) end
  local sums = ops.sum(probabilities, 1)
  if options.group == "batch" then
    counts, sums, tokens = ops.sum(counts, 0, true), ops.sum(sums, 0, true), ops.sum(tokens, 0, true)
  end
  local groups = ops.shape(tokens, 0)
  local held = ops.maximum(tokens, 1)
  local even = ops.sum(counts * sums / (held * held), -1)
  return ops.sum(even) * (options.experts / (options.top_k * groups))
end

-- The mean square of log(sum(exp(logits))), which keeps logits small (Zoph et al., arXiv:2202.08906, eq. 5).
local function z_loss(logits, tokens, present)
  local square = ops.square(ops.logsumexp(logits, -1))
  if present then square = square * present end
  return ops.sum(square) / ops.maximum(ops.sum(tokens), 1)
end

-- What was chosen: each expert's share of the choices, and the share that was dropped, in the log of the run.
local function report(options, counts, kept)
  local context, path = trace.context(), trace.path()
  if context.mode ~= "train" or options.report == false or context.reported[path] then return end
  if (context.inside or 0) > 0 then return end -- there is one number of a step for each name
  context.reported[path] = true
  local load = ops.sum(counts, 0)
  local total = ops.maximum(ops.sum(load), 1)
  for e = 0, options.experts - 1 do
    trace.log(("%s/load.%d"):format(path, e), ops.reshape(ops.slice(load, 0, e, e + 1), {}) / total)
  end
  if kept then trace.log(path .. "/dropped", 1 - ops.sum(ops.cast(kept, core.dtype(total))) / total) end
end

---- the module ----

local function make_weights(options)
  local dim, hidden, experts = options.dim, options.hidden, options.experts
  local init = options.init or initial.normal(dim ^ -0.5)
  return {
    router = base.parameter { experts, dim, init = options.init or initial.normal(dim ^ -0.5) },
    gate = base.parameter { experts, hidden, dim, init = init, tp = 1, ep = 0 },
    up = base.parameter { experts, hidden, dim, init = init, tp = 1, ep = 0 },
    down = base.parameter { experts, dim, hidden, tp = 2, ep = 0, init = options.init_out or options.init or
      initial.normal(hidden ^ -0.5) },
    bias = (options.bias_rate or 0) > 0 and base.buffer { experts, init = initial.zeros } or nil,
  }
end

---@param options { dim: integer, hidden: integer, experts: integer, top_k: integer, capacity: number?, group: "sequence"|"batch"|nil, score: "softmax"|"sigmoid"|nil, normalize: boolean?, balance: number?, z_loss: number?, bias_rate: number?, activation: string?, report: boolean?, init: function?, init_out: function? } normalize: gates of a token add up to 1, default where top_k > 1; balance, z_loss: weights of what nn.auxiliary_loss adds; bias_rate: how far a step moves the bias that makes an expert be chosen more or less (Wang et al., arXiv:2408.15664); activation: default silu; report: default true
---@return sgl.module called as moe(x, { mask = })
return function(options)
  options = read(options)
  local weights, activation = make_weights(options), activation_of("moe", options.activation or "silu")
  local kind = ("moe(%d, %d, experts=%d, top_k=%d)"):format(options.dim, options.hidden, options.experts, options.top_k)
  return base.module(kind, weights, function(x, call)
    if core.rank(x) ~= 3 or ops.shape(x, 2) ~= options.dim then
      core.error(("moe: x must be [batch, t, %d], not %s"):format(options.dim, tostring(x)))
    end
    local dtype = core.dtype(x)
    local present, bias = present_of(call, x, dtype, options.capacity), weights.bias
    local logits = ops.linear(x, weights.router())
    local scores, choice, gates = route(options, logits, present, bias and bias())
    local counts, tokens = counts_of(options, choice, present, dtype)
    if (options.balance or 0) > 0 then
      trace.owe(balance_loss(options, scores, counts, tokens, present) * options.balance)
    end
    if (options.z_loss or 0) > 0 then trace.owe(z_loss(logits, tokens, present) * options.z_loss) end
    if bias then
      local load = ops.sum(counts, 0)
      bias:update(bias() + ops.sign(ops.mean(load) - load) * options.bias_rate)
    end
    local y, kept = dispatch(options, activation, weights, x, choice, gates)
    report(options, counts, kept)
    return y
  end)
end
