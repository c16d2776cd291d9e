#!/bin/sh
# sgl.normal, sgl.uniform, sgl.bernoulli: others in each step, in each turn of a loop and of each call; by the seed; the same
# in micro-batches, resumed, and in every evaluation.
. "$ROOT/tests/e2e/common.sh"
cat >noise.lua <<'LUA'
-- A variational autoencoder (Kingma, Welling, arXiv:1312.6114) of points on a line.
local sgl = require "sgl"
local nn = sgl.nn
local enc, dec = nn.linear(3, 4, { bias = true }), nn.linear(2, 3, { bias = true })
local model = nn.module("vae", { enc = enc, dec = dec }, function(x)
  local mean, log_variance = enc(x):split(2, -1)
  local noise = sgl.normal { 96, 2 }
  sgl.log("mean", noise:mean())
  sgl.log("deviation", noise:std())
  return dec(mean + sgl.exp(log_variance * 0.5) * noise), (mean * mean + sgl.exp(log_variance) - log_variance):mean()
end)
return sgl.job {
  model = model,
  loss = function(batch)
    local first, second = sgl.uniform({ 400 }, "f64"), sgl.uniform({ 400 }, "f64")
    sgl.log("lowest", sgl.minimum(first, second):min())
    sgl.log("highest", sgl.maximum(first, second):max())
    sgl.log("alike", sgl.equal(first, second):sum():cast "f64")
    sgl.log("share", sgl.bernoulli({ 4000 }, 0.3):cast("f32"):mean())
    local _, turns = sgl.scan(function(c) return c, sgl.uniform {} end, sgl.constant(0), nil, { length = 3 })
    for i = 0, 2 do sgl.log("turn" .. i, turns:index(i)) end
    local y, divergence = model(batch.x)
    return sgl.square(y - batch.x):mean() + divergence * 0.1
  end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 96, 3 } } },
    next = function()
      local x = {}
      for i = 1, 96 * 3 do x[i] = (i - 1) // 3 / 48 - 1 end
      return { x = x }
    end,
  },
  optim = sgl.optim.adamw { lr = 1e-2 }, steps = 60, eval_every = 30, eval_batches = 2,
}
LUA
run 0 train noise.lua --out whole --log whole.log --quiet
holds "$(log loss whole.log 60) < 0.8 * $(log loss whole.log 1)"
for step in 1 60; do
    holds "$(log lowest whole.log $step) >= 0 && $(log highest whole.log $step) < 1 && $(log highest whole.log $step) > 0.98"
    holds "$(log alike whole.log $step) < 2 && $(log share whole.log $step) > 0.26 && $(log share whole.log $step) < 0.34"
    holds "$(log deviation whole.log $step) > 0.8 && $(log deviation whole.log $step) < 1.2"
    holds "$(log turn0 whole.log $step) != $(log turn1 whole.log $step)"
    holds "$(log turn1 whole.log $step) != $(log turn2 whole.log $step)"
done
for name in mean share turn0 loss; do
    holds "$(log $name whole.log 1) != $(log $name whole.log 2)"
done

run 0 train noise.lua --out half --log half.log --stop-at 23 --quiet
run 0 train noise.lua --resume half --log half.log --quiet
steps_of whole.log >a
steps_of half.log >b
same a b
run 0 train noise.lua --set plan.micro=4 --steps 3 --out micro --log micro.log --quiet
run 0 train noise.lua --steps 3 --out three --log three.log --quiet
for step in 1 3; do
    for name in mean deviation share loss; do
        holds "($(log $name micro.log $step) - $(log $name three.log $step)) ^ 2 < 1e-11"
    done
done
run 0 train noise.lua --seed 1 --steps 1 --out seeded --log seeded.log --quiet
[ "$(log mean seeded.log 1)" != "$(log mean whole.log 1)" ] || fail "the seed is not in it"
run 0 eval whole --json
mv out a
run 0 eval whole --json
same a out
[ "$(sed 's/.*"eval_loss":\([^,]*\).*/\1/' a)" = "$(log eval_loss whole.log 60)" ] || fail "an evaluation draws others"

# First values may be drawn so too: by the seed, and each parameter others.
cat >first.lua <<'LUA'
local sgl = require "sgl"
local function init(dims, dtype) return sgl.normal(dims, dtype) end
local a, b = sgl.nn.parameter { 9, init = init }, sgl.nn.parameter { 9, init = init }
return sgl.job {
  model = sgl.nn.module("two", { a = a, b = b }, function() end),
  step = function()
    sgl.update(a, a())
    return { a = a():sum(), b = b():sum() }
  end,
  data = sgl.data.batches { feeds = {}, next = function() return {} end }, steps = 1,
}
LUA
run 0 train first.lua --out first --log first.log --quiet
run 0 train first.lua --out again --log again.log --seed 1 --quiet
[ "$(log a first.log 1)" != "$(log b first.log 1)" ] || fail "two parameters begin alike"
[ "$(log a first.log 1)" != "$(log a again.log 1)" ] || fail "first values do not follow the seed"

sed 's/sgl.normal { 96, 2 }/sgl.normal(96, 2)/' noise.lua >bad.lua
refused 1 bad.lua:7: 'normal: the extents are a list: sgl.normal({ 2, 3 })' -- train bad.lua --out nothing --quiet
printf 'local sgl = require "sgl"\nlocal x = sgl.normal { 2 }\n' >bad.lua
refused 1 bad.lua:2: 'only inside a traced function' -- train bad.lua --out nothing --quiet
