#!/bin/sh
# ctest: timeout 600
# Loops and branches of a script: a recurrent net learns and resumes bit for bit, its dropout differs from turn to turn and
# is the same in the backward, micro-batches give the same losses; while_loop and cond have gradients; what is wrong in a
# function is told with its line and the names that the script uses.
. "$ROOT/tests/e2e/common.sh"

i=0
while [ $i -lt 60 ]; do
    echo "the cat sat on the mat, the dog lay on the log, and number $((i % 7)) was none of them."
    i=$((i + 1))
done >text.txt
cat >rnn.lua <<'LUA'
local sgl = require "sgl"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data
local cfg = sgl.config { vocab = 128, dim = 24, seq = 16, batch = 8, rate = 0.0, recompute = false, text = "text.txt" }
local embed, wx = nn.embedding(cfg.vocab, cfg.dim), nn.linear(cfg.dim, cfg.dim)
local wh, head, drop = nn.linear(cfg.dim, cfg.dim), nn.linear(cfg.dim, cfg.vocab), nn.dropout(cfg.rate)
local model = nn.module("rnn", { embed = embed, wx = wx, wh = wh, head = head, drop = drop }, function(tokens)
  local x = embed(tokens):transpose(1, 0, 2)
  local h0 = x:slice(0, 0, 1):reshape(-1, cfg.dim) * 0
  local _, ys = sgl.scan(function(h, token)
    h = sgl.tanh(wx(token) + wh(h))
    return h, { out = drop(h) }
  end, h0, x, { recompute = cfg.recompute })
  return head(ys.out:transpose(1, 0, 2))
end)
return sgl.job {
  model = model,
  loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = data.text { path = cfg.text, seq = cfg.seq, batch = cfg.batch, vocab = cfg.vocab },
  optim = optim.adamw { lr = 1e-2, clip = 1 },
}
LUA

run 0 train rnn.lua --steps 120 --out whole --log whole.log
holds "$(log loss whole.log 120) < 0.4 * $(log loss whole.log 1)"
run 0 train rnn.lua --steps 120 --out half --log half.log --stop-at 50
run 0 train rnn.lua --resume half --log half.log
steps_of whole.log >a
steps_of half.log >b
same a b

# In micro-batches the losses are the same up to the order of sums.
run 0 train rnn.lua --steps 12 --out parts --log parts.log --set plan.micro=4
holds "($(log loss parts.log 12) - $(log loss whole.log 12)) ^ 2 < 0.001"

# In float64 to the last digits, with dropout inside the loop, whose masks are rows of the whole mask; and in less memory.
for micro in 1 2 8; do
    run 0 train rnn.lua --steps 6 --out drop$micro --log drop$micro.log --set plan.precision=fp64 --set rate=0.3 \
        --set plan.micro=$micro
    run 0 memory rnn.lua --set seq=64 --set plan.micro=$micro
    grep 'transient peak' out | head -n 1 | tr -dc '0-9' >peak$micro
done
for step in 1 3 6; do
    for micro in 2 8; do
        for key in loss grad_norm; do
            a=$(log $key drop1.log $step) b=$(log $key drop$micro.log $step)
            holds "($a - $b) ^ 2 < (1e-12 * $a) ^ 2"
        done
    done
done
holds "$(cat peak2) < 0.6 * $(cat peak1) && $(cat peak8) < 0.3 * $(cat peak1)"

# In bf16 and fp16, in micro-batches too.
for kind in bf16 fp16; do
    run 0 train rnn.lua --steps 40 --out $kind --log $kind.log --set plan.precision=$kind --set plan.micro=2
    holds "($(log loss $kind.log 40) - $(log loss whole.log 40)) ^ 2 < (0.03 * $(log loss whole.log 40)) ^ 2"
    differ $kind.log whole.log
done

# What is computed once more is the same; dropout is another in each turn, and the same in the backward.
run 0 train rnn.lua --steps 12 --out kept --log kept.log --set rate=0.3
run 0 train rnn.lua --steps 12 --out again --log again.log --set rate=0.3 --set recompute=true
steps_of kept.log >a
steps_of again.log >b
same a b

# refused_loss TEXT... -- : the loss in the file `loss` is refused with each text.
refused_loss() {
    { echo 'local sgl = require "sgl"
local w = sgl.nn.linear(3, 3)
return sgl.job { model = sgl.nn.module("m", { w = w }, function(x) return w(x) end), steps = 3, optim = sgl.optim.sgd { lr = 0.1 },
  data = sgl.data.batches { feeds = { x = { dtype = "f32", dims = { 4, 3 } } }, next = function() return nil end },
  loss = function(batch) local x, y = batch.x, w(batch.x)'; cat loss; echo '  return y:sum() end }'; } >bad.lua
    refused 1 "$@" -- train bad.lua --out bad
}
echo 'y = sgl.scan(function(c, t) return { h = c.h:sum(1) } end, { h = y }, x)' >loss
refused_loss 'bad.lua:6: scan: carry.h is f32[4,3], and the function gives f32[4] for it; the shape and dtype must stay'
echo 'y = sgl.scan(function(c, t) return { g = c.h } end, { h = y }, x)' >loss
refused_loss 'bad.lua:6: scan: the function gives no carry.h'
echo 'y = sgl.scan(function(c, t) return c end, { h = 0 }, x)' >loss
refused_loss 'bad.lua:6: scan: carry.h is 0; it must be a tensor, such as sgl.constant(0, "f32")'
echo 'y = sgl.scan(function(c, t) return c end, y, { x, x:transpose() })' >loss
refused_loss 'bad.lua:6: scan: xs[2] is f32[3,4], and xs[1] says 4 turns; the first extents must be the same'
echo 'y = sgl.scan(function(c, t) return c end, y)' >loss
refused_loss 'bad.lua:6: scan: give xs to go along, or { length = n }'
echo 'y = sgl.cond(y:sum(), function() return x end, function() return y end)' >loss
refused_loss 'bad.lua:6: cond: the predicate is f32[]; it must be a bool scalar, such as sgl.less(a, b) of scalars'
echo 'y = sgl.cond(sgl.less(y:sum(), 1), function() return x end, function() return y:sum() end)' >loss
refused_loss 'bad.lua:6: cond: result is f32[4,3], and the third argument gives f32[] for it'
echo 'y = sgl.while_loop { init = y, condition = function(c) return sgl.less(c, 1) end, body = function(c) return c end }' >loss
refused_loss 'bad.lua:6: while_loop: what condition gives is bool[4,3]; it must be a bool scalar'
echo 'y = sgl.while_loop { init = y, condition = function(c) return sgl.less(c:sum(), 1) end, body = function(c) return c * 2 end }' >loss
refused_loss 'bad.lua:6: while: has no limit'
echo 'local kept; sgl.scan(function(c, t) kept = t; return c end, y, x); y = y + kept' >loss
refused_loss 'bad.lua:6: add: argument 1 was made inside of a loop or branch that is over'
echo 'y = sgl.scan(function(c, t) sgl.log("t", t:sum()); return c end, y, x)' >loss
refused_loss 'bad.lua:6: sgl.log: not in a function given to scan, while_loop or cond'
echo 'if y:sum() > 0 then y = x end' >loss
refused_loss 'bad.lua:6:' 'sgl.cond(p, yes, no)'

# An error that the script catches leaves no loop open behind it.
cat >caught.lua <<'LUA'
local sgl = require "sgl"
local nn, optim = sgl.nn, sgl.optim
local body = nn.linear(3, 3)
local model = nn.module("m", { body = body }, function(x) return body(x) end)
local function next(cursor, is_eval)
  if is_eval and cursor > 1 then return nil end
  local x = {}
  for i = 1, 12 do x[i] = math.sin(cursor * 3 + i) end
  return { x = x }
end
return sgl.job {
  model = model,
  loss = function(batch)
    local y = model(batch.x)
    assert(not pcall(sgl.scan, function() error "on purpose" end, y, batch.x))
    local z = sgl.cond(sgl.less(y:sum(), 1.0), function() return { a = y:tanh(), b = y } end,
      function() return { a = y * 2, b = y:sin() } end)
    local w = sgl.while_loop {
      init = { v = z.a, n = sgl.constant(0, "f32") }, limit = 5,
      condition = function(c) return sgl.less(c.v:abs():max(), 3.0) end,
      body = function(c, i) return { v = c.v * 1.5 + z.b * 0.1, n = c.n + 1 } end,
    }
    sgl.log("turns", w.n)
    return (w.v * w.v):mean() + (z.b * z.b):mean()
  end,
  optim = optim.sgd { lr = 0.01 },
  data = sgl.data.batches { feeds = { x = { dtype = "f32", dims = { 4, 3 } } }, next = next },
  steps = 20,
}
LUA
run 0 train caught.lua --log caught.log --out caught
holds "$(log turns caught.log 20) <= 5"
holds "$(log turns caught.log 1) >= 1"
holds "$(log loss caught.log 20) < $(log loss caught.log 1)"
