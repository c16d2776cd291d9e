#!/bin/sh
# The gradients of maxima: each maximum passes on a whole, whatever kernel computes z anew to compare it with its maximum, in
# micro-batches and without; nothing vanishes, nothing becomes inf.
. "$ROOT/tests/e2e/common.sh"
cat >maximum.lua <<'LUA'
-- z = x / (x x + 1): an fma of x x + 1 in one kernel and none in another would give z two values.
local sgl = require "sgl"
local cfg = sgl.config { op = "max", axis = 0, rows = 64, cols = 48 }
local model = sgl.nn.linear(cfg.cols, 1)
local sgd = sgl.optim.sgd { lr = 0.01 }

local function next(cursor)
  local x = {}
  for i = 1, cfg.rows * cfg.cols do x[i] = 3 * math.sin(cursor * 7 + i * i * 0.37) end
  return { x = x }
end

return sgl.job {
  model = model,
  step = function(batch)
    local loss = model(batch.x):mean()
    sgd:minimize(loss, model)
    local z = batch.x / (batch.x * batch.x + 1)
    return { loss = loss, winners = sgl.grad(z[cfg.op](z, cfg.axis):sum(), { z })[1]:sum() }
  end,
  optim = sgd,
  data = sgl.data.batches { feeds = { x = { dtype = "f32", dims = { cfg.rows, cfg.cols } } }, next = next },
  steps = 3,
}
LUA

# winners OPTION...: at each step, how much of a gradient of 1 per maximum arrives.
winners() {
    rm -rf folder log
    run 0 train maximum.lua --log log --out folder "$@"
    for step in 1 2 3; do echo "$(log winners log $step)"; done | sort -u
}

for micro in 1 2 4; do
    for op in max min; do
        [ "$(winners --set op=$op --set axis=0 --set plan.micro=$micro)" = 48 ] || fail "$op of columns, micro $micro"
        [ "$(winners --set op=$op --set axis=1 --set plan.micro=$micro)" = 64 ] || fail "$op of rows, micro $micro"
    done
done
