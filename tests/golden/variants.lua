-- The model of the golden curve variants.json, as make_curves.py has it: an encoder that sees real tokens alone, and
-- a decoder over packed documents with grouped heads, a window, normed queries and keys and scaled rotary positions,
-- which attends to the encoder. Documents and padding follow from the tokens. Batches come from the test.
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { micro = 1, precision = "fp64", steps = 50 }
local dim, heads, kv_heads = 48, 6, 2

local embed, norm = nn.embedding(61, dim), nn.rms_norm(dim)
local encoder = nn.attention { dim = dim, heads = heads, causal = false, bias = true }
local cross = nn.attention { dim = dim, heads = heads, kv_heads = kv_heads, context_dim = dim }
local own = nn.attention {
  dim = dim, heads = heads, kv_heads = kv_heads, window = 7, qk_norm = true,
  rope = { theta = 1e4, factor = 8, original_context = 64, low_freq_factor = 1, high_freq_factor = 4 },
}
local norm1, norm2, norm3 = nn.rms_norm(dim), nn.rms_norm(dim), nn.rms_norm(dim)

local children = {
  embed = embed, encoder = encoder, norm1 = norm1, own = own, norm2 = norm2, cross = cross, norm3 = norm3, norm = norm,
}
local model = nn.module("variants", children, function(tokens)
  local documents = sgl.cumsum(sgl.cast(sgl.less(tokens, 6), "i32"), 1, { exclusive = true })
  local is_real = sgl.not_equal(tokens % 5, 2)
  local x = embed(tokens)
  local context = x + encoder(norm1(x), { mask = is_real })
  x = x + own(norm2(x), { documents = documents })
  x = x + cross(norm3(x), { context = context, context_mask = is_real })
  return nn.tied_head(embed, norm(x))
end)

local feed = { dtype = "i32", dims = { 4, 24 } }
return sgl.job {
  model = model,
  loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.batches { feeds = { tokens = feed, targets = feed }, next = function() return nil end },
  optim = sgl.optim.adamw {
    lr = sgl.optim.warmup_cosine { peak = 3e-3, warmup = 10, final = 3e-4 }, weight_decay = 0.1, clip = 1.0,
  },
  plan = sgl.plan { micro = cfg.micro, precision = cfg.precision },
  steps = cfg.steps,
}
