-- The model of the golden curve moe.json, as make_models.py has it: three layers of experts, the first with a capacity
-- for each sequence, with padding and a bias, the second without, the third with one choice and a capacity for the
-- batch. Batches come from the test.
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { micro = 1, precision = "fp64", steps = 50 }

local dim, hidden = 24, 20

local function experts(options)
  options.dim, options.hidden, options.experts = dim, hidden, 4
  options.top_k, options.balance = options.top_k or 2, 0.03
  return nn.moe(options)
end

local embed, norm = nn.embedding(61, dim), nn.rms_norm(dim)
local moe1 = experts { capacity = 1.0, z_loss = 0.002, bias_rate = 0.01 }
local moe2 = experts { score = "sigmoid", activation = "gelu" }
local moe3 = experts { capacity = 1.0, z_loss = 0.002, top_k = 1, group = "batch" }
local norm1, norm2, norm3 = nn.rms_norm(dim), nn.rms_norm(dim), nn.rms_norm(dim)

local model = nn.module("moe", {
  embed = embed, norm1 = norm1, moe1 = moe1, norm2 = norm2, moe2 = moe2, norm3 = norm3, moe3 = moe3, norm = norm,
}, function(tokens)
  local x = embed(tokens)
  x = x + moe1(norm1(x), { mask = sgl.not_equal(tokens % 5, 2) })
  x = x + moe2(norm2(x))
  x = x + moe3(norm3(x))
  return nn.tied_head(embed, norm(x))
end)

local feed = { dtype = "i32", dims = { 4, 12 } }
return sgl.job {
  model = model,
  loss = function(batch)
    local mean, count = nn.cross_entropy(model(batch.tokens), batch.targets)
    return mean + nn.auxiliary_loss(), count
  end,
  data = sgl.data.batches { feeds = { tokens = feed, targets = feed }, next = function() return nil end },
  optim = sgl.optim.adamw {
    lr = sgl.optim.warmup_cosine { peak = 3e-3, warmup = 10, final = 3e-4 }, weight_decay = 0.1, clip = 1.0,
  },
  plan = sgl.plan { micro = cfg.micro, precision = cfg.precision },
  steps = cfg.steps,
}
