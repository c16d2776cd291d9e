#!/bin/sh
# A job with a step of its own: two optimizers on two parts of the model, sgl.grad by hand, schedules, momentum, decay
# groups; it resumes bit for bit like any other.
. "$ROOT/tests/e2e/common.sh"
cat >own.lua <<'LUA'
-- Regression with an adversary: one part learns the targets, the other one a scale, each with its own optimizer.
local sgl = require "sgl"
local nn, optim = sgl.nn, sgl.optim
local cfg = sgl.config { rows = 8, steps = 60 }

local body, head = nn.linear(3, 8, { bias = true }), nn.linear(8, 1, { bias = true })
local model = nn.module("pair", { body = body, head = head }, function(x) return head(body(x):tanh()) end)
local slow = optim.sgd { lr = optim.cosine { peak = 0.1 }, momentum = 0.9, name = "slow" }
local fast = optim.adamw {
  lr = optim.wsd { peak = 0.02, warmup = 5, decay = 10 }, weight_decay = 0.01, name = "fast",
  decays = function(path) return path:find "weight" ~= nil end,
}

local function next(cursor)
  local x, y = {}, {}
  for i = 1, cfg.rows * 3 do x[i] = math.sin(cursor * 24 + i) end
  for i = 1, cfg.rows do y[i] = 2 * x[3 * i - 2] - x[3 * i - 1] + 0.5 * x[3 * i] end
  return { x = x, y = y }
end

return sgl.job {
  model = model,
  step = function(batch)
    local miss = model(batch.x) - batch.y
    local loss = (miss * miss):mean()
    local gradients = sgl.grad(loss, { body.weight() })
    slow:minimize(loss, body)
    fast:minimize(loss, head)
    return { loss = loss, gradient = (gradients[1] * gradients[1]):sum():sqrt() }
  end,
  optim = { slow, fast },
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { cfg.rows, 3 } }, y = { dtype = "f32", dims = { cfg.rows, 1 } } }, next = next,
  },
  steps = cfg.steps,
}
LUA

run 0 train own.lua --out whole --log whole.log
says out ' gradient '
holds "$(log loss whole.log 60) < 0.1 * $(log loss whole.log 1)"
holds "$(log gradient whole.log 1) > 0"
grep -aq '"slow.' whole/step-00000060/states.safetensors && grep -aq '"fast.' whole/step-00000060/states.safetensors ||
    fail "both optimizers keep states"
run 0 train own.lua --out half --log half.log --stop-at 23
run 0 train own.lua --resume half --log half.log
steps_of whole.log >a
steps_of half.log >b
same a b
refused 1 'decode' 'context' -- generate whole --prompt x

# An optimizer made anew in each step would have states of another name in each trace.
sed 's/slow:minimize(loss, body)/sgl.optim.sgd { lr = 1e-3 }:minimize(loss, body)/' own.lua >bad.lua
refused 1 bad.lua: 'sgd: an optimizer keeps states from step to step: make it once' -- train bad.lua --out bad --quiet
