--- nn.attention: multi-head self-attention with grouped key and value heads (Vaswani et al., arXiv:1706.03762;
--- Ainslie et al.,
--- arXiv:2305.13245), rotary positions, causal or not, with a sliding window if asked.
--- Comes in: x [batch, t, dim]. Goes out: the same shape. Weights wq [heads * head_dim, dim], wk and wv [kv_heads *
--- head_dim,
--- dim], wo [dim, heads * head_dim], and with bias bq, bk, bv, bo.
--- In a decode step keys and values stand in caches [batch, context, kv_heads, head_dim] under the module's path.

local core = require "sgl.core"
local check = require "sgl.check"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

local known = {
  dim = "size", heads = "size", kv_heads = "size?", head_dim = "size?", causal = "flag?", rope = "positive?",
  window = "size?", bias = "flag?", scale = "positive?", init = "call?", init_out = "call?",
}

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

-- Keys or values of all positions so far: the cache with those of this step written at the position.
local function cached(name, fresh)
  local context = trace.context()
  local batch, _, heads, head_dim = table.unpack(ops.shape(fresh))
  local path = ("cache.%s/%s"):format(name, trace.path())
  local cache = core.input("cache", path, core.dtype(fresh), { batch, context.context, heads, head_dim })
  local whole = ops.dynamic_update(cache, fresh, trace.position(), 1)
  core.update(path, whole)
  return whole
end

---@param options { dim: integer, heads: integer, kv_heads: integer?, head_dim: integer?, causal: boolean?, rope: number?, window: integer?, bias: boolean?, scale: number?, init: function?, init_out: function? }
---@return sgl.module
return function(options)
  local kv_heads, head_dim = sizes(options)
  local dim, heads = options.dim, options.heads
  local causal = options.causal ~= false
  local scale = options.scale or head_dim ^ -0.5
  local init = options.init or initial.normal(dim ^ -0.5)
  local init_out = options.init_out or options.init or initial.normal((heads * head_dim) ^ -0.5)
  local weights = {
    wq = base.parameter { heads * head_dim, dim, init = init },
    wk = base.parameter { kv_heads * head_dim, dim, init = init },
    wv = base.parameter { kv_heads * head_dim, dim, init = init },
    wo = base.parameter { dim, heads * head_dim, init = init_out },
  }
  if options.bias then
    weights.bq = base.parameter { heads * head_dim, init = initial.zeros }
    weights.bk = base.parameter { kv_heads * head_dim, init = initial.zeros }
    weights.bv = base.parameter { kv_heads * head_dim, init = initial.zeros }
    weights.bo = base.parameter { dim, init = initial.zeros }
  end
  local function project(x, weight, bias) return ops.linear(x, weight(), bias and bias()) end

  local kind = ("attention(%d, heads=%d, kv_heads=%d)"):format(dim, heads, kv_heads)
  return base.module(kind, weights, function(x)
    local batch, length = ops.shape(x, 0), ops.shape(x, 1)
    local q = ops.reshape(project(x, weights.wq, weights.bq), batch, length, heads, head_dim)
    local k = ops.reshape(project(x, weights.wk, weights.bk), batch, length, kv_heads, head_dim)
    local v = ops.reshape(project(x, weights.wv, weights.bv), batch, length, kv_heads, head_dim)
    local offset = trace.position()
    if options.rope then
      q, k = ops.rope(q, offset, options.rope), ops.rope(k, offset, options.rope)
    end
    if trace.mode() == "decode" then
      if not causal then core.error("attention: only causal attention can generate token by token") end
      k, v = cached("k", k), cached("v", v)
    end
    local y = ops.attention(q, k, v, offset, { scale = scale, causal = causal, window = options.window })
    return project(ops.reshape(y, batch, length, heads * head_dim), weights.wo, weights.bo)
  end)
end
