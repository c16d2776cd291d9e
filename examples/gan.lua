-- Two networks against each other, with a step of one's own (Goodfellow et al., arXiv:1406.2661): one makes points of
-- noise, one tells them from points on a ring of eight spots. `far` is how far made points lie from the nearest spot:
-- 0.8 at first, 0.2 at the end. What the judge says of true points is kept flat around them (Mescheder et al.,
-- arXiv:1801.04406) by a loss that holds a gradient; without it the judge wins, and the maker learns no more.
--   sgl train examples/gan.lua

local sgl = require "sgl"
local nn, optim = sgl.nn, sgl.optim

local cfg = sgl.config { noise = 4, hidden = 128, batch = 256, lr = 3e-3, flat = 1.0, steps = 2000, seed = 1 }

local maker = sgl.models.mlp { inputs = cfg.noise, hidden = cfg.hidden, layers = 2, classes = 2 }
local judge = sgl.models.mlp { inputs = 2, hidden = cfg.hidden, layers = 2, classes = 1, activation = "leaky_relu" }
local model = nn.module("gan", { maker = maker, judge = judge }, function(noise) return maker(noise) end)

-- Normal numbers from a seed: splitmix64, then Box-Muller.
local function normal_numbers(seed)
  local state = seed
  local function uniform()
    state = state + 0x9E3779B97F4A7C15
    local z = state
    z = (z ~ z >> 30) * 0xBF58476D1CE4E5B9
    z = (z ~ z >> 27) * 0x94D049BB133111EB
    return ((z ~ z >> 31) >> 11) * 2.0 ^ -53
  end
  return function() return (-2 * math.log(1 - uniform())) ^ 0.5 * math.cos(2 * math.pi * uniform()) end, uniform
end

local function next_batch(cursor, is_eval)
  local normal, uniform = normal_numbers((cfg.seed << 40) + (is_eval and 1 << 39 or 0) + (cursor << 16))
  local points, noise = {}, {}
  for i = 1, cfg.batch do
    local angle = math.pi / 4 * (uniform() * 8 // 1)
    points[2 * i - 1], points[2 * i] = math.cos(angle) + 0.05 * normal(), math.sin(angle) + 0.05 * normal()
  end
  for i = 1, cfg.batch * cfg.noise do noise[i] = normal() end
  return { points = points, noise = noise }
end

-- How far points [n, 2] lie from the nearest spot, on the average.
local function distance(points)
  local all = {}
  for i = 0, 7 do
    local x, y = math.cos(math.pi / 4 * i), math.sin(math.pi / 4 * i)
    all[i + 1] = sgl.square(points:slice(1, 0, 1) - x) + sgl.square(points:slice(1, 1, 2) - y)
  end
  return sgl.sqrt(sgl.min(sgl.concat(all, 1), 1)):mean()
end

local learn_maker = optim.adamw { lr = cfg.lr, beta1 = 0.5, beta2 = 0.9, name = "maker" }
local learn_judge = optim.adamw { lr = cfg.lr, beta1 = 0.5, beta2 = 0.9, name = "judge" }

return sgl.job {
  model = model,
  step = function(batch)
    local made = maker(batch.noise)
    local judge_loss = sgl.softplus(-judge(batch.points)):mean() + sgl.softplus(judge(made:stop_gradient())):mean()
    local maker_loss = sgl.softplus(-judge(made)):mean()
    local slope = sgl.grad(judge(batch.points):sum(), batch.points)
    local steepness = sgl.square(slope):sum(-1):mean()
    learn_judge:minimize(judge_loss + steepness * (cfg.flat / 2), judge)
    learn_maker:minimize(maker_loss, maker)
    return { judge_loss = judge_loss, maker_loss = maker_loss, steepness = steepness, far = distance(made) }
  end,
  data = sgl.data.batches {
    feeds = {
      points = { dtype = "f32", dims = { cfg.batch, 2 } }, noise = { dtype = "f32", dims = { cfg.batch, cfg.noise } },
    },
    next = next_batch,
  },
  steps = cfg.steps,
}
