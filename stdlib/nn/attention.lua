--- nn.attention: multi-head attention with grouped key and value heads (Vaswani et al., arXiv:1706.03762; Ainslie et
--- al., arXiv:2305.13245), of a sequence to itself or to another one.
--- Comes in: x [batch, t, dim] and, when called, who may see whom: `mask` bool [batch, t] (false: padding; that of an
--- sgl.dim is known by itself),
--- `documents` integer [batch, t] (equal within a document), or `context` [batch, s, context_dim] with `context_mask`
--- bool [batch, s]. Goes out: the shape of x.
--- Weights wq [heads * head_dim, dim], wk and wv [kv_heads * head_dim, dim or context_dim], wo [dim, heads * head_dim],
--- with bias bq, bk, bv, bo, with qk_norm q_norm.weight and k_norm.weight [head_dim].
--- In a decode step keys and values stand in caches [batch, context, kv_heads, head_dim] under the module's path; those
--- of a `context` are made from it in each step.

local core = require "sgl.core"
local check = require "sgl.check"
local dims_of = require "sgl.dim"
local base = require "sgl.nn.module"
local cache = require "sgl.nn.cache"
local initial = require "sgl.nn.initial"
local make_rope = require "sgl.nn.rope"
local ops = require "sgl.ops"
local rms_norm = require "sgl.nn.rms_norm"
local trace = require "sgl.trace"

local known = {
  dim = "size", heads = "size", kv_heads = "size?", head_dim = "size?", context_dim = "size?", causal = "flag?",
  rope = "any?", window = "size?", bias = "flag?", qk_norm = "flag?", scale = "positive?", init = "call?",
  init_out = "call?",
}
local called_with = { mask = "any?", documents = "any?", context = "any?", context_mask = "any?" }

local function sizes(options)
  check.options("attention", options, known)
  local heads, kv_heads = options.heads, options.kv_heads or options.heads
  if heads % kv_heads ~= 0 then
    core.error(("attention: heads (%d) is no multiple of kv_heads (%d)"):format(heads, kv_heads))
  end
  if not options.head_dim and options.dim % heads ~= 0 then
    core.error(("attention: dim (%d) is no multiple of heads (%d); give head_dim"):format(options.dim, heads))
  end
  local head_dim = options.head_dim or options.dim // heads
  if options.rope and head_dim % 2 ~= 0 then
    core.error(("attention: rope turns pairs, head_dim is %d; it must be even"):format(head_dim))
  end
  return kv_heads, head_dim
end

-- The function that turns queries and keys, from rope = THETA or a table of nn.rope's options.
local function rope_of(rope, head_dim)
  if not rope then return nil end
  if type(rope) == "table" then return make_rope(head_dim, rope) end
  check.value("attention", "rope", "positive", rope)
  return make_rope(head_dim, { theta = rope })
end

---- who sees whom ----

local function check_tensor(name, tensor, dtypes, batch, length)
  if core.is_tensor(tensor) and dtypes[core.dtype(tensor)] and core.rank(tensor) == 2 and
      ops.shape(tensor, 0) == batch and ops.shape(tensor, 1) == length then
    return
  end
  core.error(("attention: %s must be %s [%d, %d], not %s"):format(name, dtypes.bool and "bool" or "integers", batch,
    length, check.show(tensor)))
end

local bools = { bool = true }
local integers = { i64 = true, i32 = true, i16 = true, i8 = true, u8 = true, u16 = true, u32 = true }

-- Segments i32 [batch, length]: the document of each place, below 0 where it is padding. nil: all is one.
local function segments(mask, documents, batch, length)
  if not mask and not documents then return nil end
  local own = documents and ops.cast(documents, "i32") or ops.zeros({ batch, length }, "i32")
  return mask and ops.select(mask, own, ops.constant(-1, "i32")) or own
end

-- How many places each one is behind the first of its document: y_i = same_i * (y_(i-1) + 1).
local function places(documents)
  local same = ops.equal(ops.slice(documents, 1, 1), ops.slice(documents, 1, 0, ops.shape(documents, 1) - 1))
  local follows = ops.pad(ops.cast(same, "i32"), 1, 1, 0)
  return ops.recurrence(follows, follows, 1)
end

-- What is not causal sees the padding of a dim with buckets, unless a mask says where it is.
local function with_masks(call, x, options)
  local function mask_of(tensor)
    return core.is_tensor(tensor) and core.rank(tensor) == 3 and dims_of.mask_of(tensor) or nil
  end
  local own = { mask = call.mask, documents = call.documents, context = call.context, context_mask = call.context_mask }
  if own.context then
    own.context_mask = own.context_mask or mask_of(own.context)
  elseif options.causal == false then
    own.mask = own.mask or mask_of(x)
  end
  return own
end

-- What a call says, checked: segments of the queries and of the keys, and positions for rope.
local function sight(call, x, options)
  call = with_masks(check.options("attention", call, called_with), x, options)
  local batch, length = ops.shape(x, 0), ops.shape(x, 1)
  if call.mask then check_tensor("mask", call.mask, bools, batch, length) end
  if call.documents then check_tensor("documents", call.documents, integers, batch, length) end
  if trace.mode() == "decode" and (call.mask or call.documents) then
    core.error("attention: token by token there is one sequence without padding; leave mask and documents out")
  end
  if not call.context then
    if call.context_mask then core.error("attention: context_mask needs context") end
    local own = segments(call.mask, call.documents, batch, length)
    return own, own, call.documents and options.rope and places(call.documents) or trace.position()
  end
  if call.documents or options.causal or options.rope or options.window then
    core.error("attention: places of a context are not those of x; leave out documents, causal, rope and window")
  end
  if not core.is_tensor(call.context) or core.rank(call.context) ~= 3 or ops.shape(call.context, 0) ~= batch then
    core.error(("attention: context must be [%d, s, context_dim], not %s"):format(batch, check.show(call.context)))
  end
  local there = ops.shape(call.context, 1)
  if call.context_mask then check_tensor("context_mask", call.context_mask, bools, batch, there) end
  if not call.mask and not call.context_mask then return nil, nil, trace.position() end
  return segments(call.mask, nil, batch, length) or ops.zeros({ batch, length }, "i32"),
    segments(call.context_mask, nil, batch, there) or ops.zeros({ batch, there }, "i32"), trace.position()
end

---- the module ----

local function make_weights(options, kv_heads, head_dim)
  local dim, wide, narrow = options.dim, options.heads * head_dim, kv_heads * head_dim
  local from = options.context_dim or dim
  local init = options.init or initial.normal(dim ^ -0.5)
  local init_kv = options.init or initial.normal(from ^ -0.5)
  local init_out = options.init_out or options.init or initial.normal(wide ^ -0.5)
  local weights = {
    wq = base.parameter { wide, dim, init = init, tp = 0 },
    wk = base.parameter { narrow, from, init = init_kv, tp = 0 },
    wv = base.parameter { narrow, from, init = init_kv, tp = 0 },
    wo = base.parameter { dim, wide, init = init_out, tp = 1 },
  }
  if options.bias then
    weights.bq = base.parameter { wide, init = initial.zeros, tp = 0 }
    weights.bk = base.parameter { narrow, init = initial.zeros, tp = 0 }
    weights.bv = base.parameter { narrow, init = initial.zeros, tp = 0 }
    weights.bo = base.parameter { dim, init = initial.zeros }
  end
  if options.qk_norm then weights.q_norm, weights.k_norm = rms_norm(head_dim), rms_norm(head_dim) end
  return weights
end

---@param options { dim: integer, heads: integer, kv_heads: integer?, head_dim: integer?, context_dim: integer?, causal: boolean?, rope: number|table|nil, window: integer?, bias: boolean?, qk_norm: boolean?, scale: number?, init: function?, init_out: function? } causal: default true, and false with a context; rope: theta, or nn.rope's options; qk_norm: rms_norm of each query and key before rope (Dehghani et al., arXiv:2302.05442)
---@return sgl.module called as attn(x, { mask =, documents =, context =, context_mask = })
return function(options)
  local kv_heads, head_dim = sizes(options)
  local dim, heads, rope = options.dim, options.heads, rope_of(options.rope, head_dim)
  local scale = options.scale or head_dim ^ -0.5
  local weights = make_weights(options, kv_heads, head_dim)
  local function project(x, weight, bias) return ops.linear(x, weight(), bias and bias()) end
  local function split(x, weight, bias, count)
    return ops.reshape(project(x, weight, bias), ops.shape(x, 0), ops.shape(x, 1), count, head_dim)
  end

  local kind = ("attention(%d, heads=%d, kv_heads=%d)"):format(dim, heads, kv_heads)
  return base.module(kind, weights, function(x, call)
    local of_queries, of_keys, positions = sight(call, x, options)
    local context = call and call.context
    local from, causal = context or x, options.causal ~= false and not context
    if ops.shape(from, 2) ~= weights.wk.dims[2] then
      core.error(("attention: keys are made of %d numbers, %s has %d"):format(weights.wk.dims[2],
        context and "context" or "x", ops.shape(from, 2)))
    end
    local q = split(x, weights.wq, weights.bq, heads)
    local k = split(from, weights.wk, weights.bk, kv_heads)
    local v = split(from, weights.wv, weights.bv, kv_heads)
    if options.qk_norm then q, k = weights.q_norm(q), weights.k_norm(k) end
    if rope then q, k = rope(q, positions), rope(k, positions) end
    if trace.mode() == "decode" and not context then
      if not causal then core.error("attention: only causal attention can generate token by token") end
      k, v = cache.along("k", k), cache.along("v", v)
    end
    local y = ops.attention(q, k, v, trace.position(), {
      scale = scale, causal = causal, window = options.window, query_segments = of_queries, key_segments = of_keys,
    })
    return project(ops.reshape(y, ops.shape(x, 0), ops.shape(x, 1), heads * head_dim), weights.wo, weights.bo)
  end)
end
