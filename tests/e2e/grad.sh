#!/bin/sh
# Derivatives in scripts: of one value by several at once, in the shape of the table that asks; of fields of a table that a
# function returns; of derivatives; through stop_gradient. A loss that nothing learns from is refused at its line, a
# parameter that none reaches is named.
. "$ROOT/tests/e2e/common.sh"
cat >grad.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local w = nn.parameter { 3, init = nn.init.constant(0.5) }
local b = nn.parameter { init = nn.init.constant(0.25) }
local model = nn.module("cubes", { w = w, b = b }, function(x) return { cubes = (w() * w() * w()):sum(), both = (w() * b() * x):sum() } end)
local function step(batch)
  local parts = model(batch.x)
  local first = sgl.grad(parts.cubes, w)
  local second = sgl.grad(first:sum(), w)
  local third = sgl.grad((second * second):sum(), { w })[1]
  local named = sgl.grad(parts.both, { by_w = w, list = { b, batch.x }, model = model })
  local penalty = parts.both + named.by_w:square():sum()
  local held = sgl.grad((w() * sgl.stop_gradient(w())):sum(), w)
  sgl.update(w, w() + 0)
  return {
    first = first:sum(), second = second:sum(), third = third:sum(), by_w = named.by_w:sum(), by_b = named.list[1],
    by_x = named.list[2]:sum(), of_model = named.model[2], penalty = sgl.grad(penalty, b), held = held:sum(),
  }
end
return sgl.job {
  model = model, step = step, steps = 1,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 3 } } }, next = function() return { x = { 1, 2, 5 } } end,
  },
}
LUA
run 0 train grad.lua --out out.run --log log
[ ! -s err ] || fail "it complained"
expect() { holds "$(log $1 log 1) == $2"; }
expect first 2.25   # 3 w^2
expect second 9     # 6 w
expect third 108    # 2 * 6 w * 6
expect by_w 2       # b x
expect by_b 4       # w x
expect by_x 0.375   # w b
expect of_model 4
expect penalty 19   # w x + 2 b x^2
expect held 1.5

refused_line() {
    awk -v line="$1" -v code="$2" 'NR == line { print code; next } { print }' grad.lua >case.lua
    line=$1
    shift 2
    refused 1 "case.lua:$line: " "$@" -- train case.lua --out nothing
}
refused_line 8 '  local first = sgl.grad(parts, w)' 'grad: the first argument is a table' 'one field of the table'
refused_line 8 '  local first = sgl.grad(w(), w)' 'grad'
refused_line 8 '  local first = sgl.grad(parts.cubes, { w, x = "w" })' "grad: 'w' is a string"

# By an optimizer: a loss, and a term of it, that teaches nothing.
cat >loss.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local w = nn.parameter { 3, init = nn.init.constant(0.5) }
local idle = nn.parameter { 3, init = nn.init.constant(0.5) }
local model = nn.module("line", { w = w, idle = idle }, function(x) return (x * w()):sum(-1) end)
return sgl.job {
  model = model, steps = 2, optim = sgl.optim.sgd { lr = 0.1 },
  loss = function(batch)
    return model(batch.x):square():mean()
  end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 2, 3 } } }, next = function() return { x = { 1, 2, 5, 0, 1, 1 } } end,
  },
}
LUA
run 0 train loss.lua --out loss.run
[ "$(grep -c 'no gradient reaches parameter idle' err)" -eq 1 ] || fail "idle is not named once"
says_not err 'parameter w'
# Once in a run, however many gradients and programs ask for it.
cat >twice.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local w = nn.parameter { 3, init = nn.init.constant(0.5) }
local idle = nn.parameter { 3, init = nn.init.constant(0.5) }
local model = nn.module("line", { w = w, idle = idle }, function(x) return (x * w()):sum(-1) end)
return sgl.job {
  model = model, steps = 2,
  step = function(batch)
    local loss = model(batch.x):square():mean()
    local a, b = sgl.grad(loss, { w, idle }), sgl.grad(loss * 2 + 1, { w, idle })
    sgl.update(w, w() - a[1] * 0.1 - b[1] * 0.1 - a[2] - b[2])
    return { loss = loss }
  end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 2, 3 } } }, next = function() return { x = { 1, 2, 5, 0, 1, 1 } } end,
  },
}
LUA
for command in "train twice.lua --out twice.run" "memory twice.lua" "graph twice.lua --after autodiff"; do
    # shellcheck disable=SC2086
    run 0 $command
    [ "$(grep -c 'twice.lua:10: no gradient reaches parameter idle' err)" -eq 1 ] || fail "$command: idle is not named once"
done

# A term that a layer declares must teach something; of a sum that the script writes, a constant is a term like others.
cat >term.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local w = nn.parameter { 3, init = nn.init.constant(0.5) }
local want = require "sgl.trace"
local term = nn.module("term", {}, function(x) want.owe((x * x):mean()) return x end)
local model = nn.module("line", { w = w, term = term }, function(x) return (term(x) * w()):sum(-1) end)
return sgl.job {
  model = model, steps = 2, optim = sgl.optim.sgd { lr = 0.1 },
  loss = function(batch)
    return model(batch.x):square():mean() + nn.auxiliary_loss()
  end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 2, 3 } } }, next = function() return { x = { 1, 2, 5, 0, 1, 1 } } end,
  },
}
LUA
refused 1 "term.lua:9: sgd: the auxiliary loss of 'term' depends on none of the parameters that learn" -- \
    train term.lua --out nothing
sed 's/owe((x \* x)/owe((w() * x)/' term.lua >case.lua
run 0 train case.lua --out case.run
sed 's/nn.auxiliary_loss()/batch.x:square():mean() * 0.1/; s/want.owe.*) return x/return x/' term.lua >case.lua
run 0 train case.lua --out constant.run
says_not err 'warning'

sed 's/model(batch.x):square/batch.x:square/' loss.lua >case.lua
refused 1 'case.lua:8: sgd: the loss depends on none of the 2 parameters' -- train case.lua --out nothing
sed 's/model(batch.x):square/sgl.stop_gradient(model(batch.x)):square/' loss.lua >case.lua
refused 1 'case.lua:8: sgd: the loss depends on none of the 2 parameters' -- train case.lua --out nothing
sed 's/model(batch.x):square/sgl.cast(sgl.cast(model(batch.x), "i32"), "f32"):square/' loss.lua >case.lua
refused 1 'case.lua:8: sgd: the loss depends on none of the 2 parameters' -- train case.lua --out nothing

# A sum of sums with itself, 40 deep, has 2^40 ways through it: it is taken as it is, and derived in no time. Both a value from
# around a loop, and one of which each turn reads a slice.
cat >doubled.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local w = nn.parameter { 3, init = nn.init.constant(0.5) }
local function doubled(x)
  for _ = 1, 40 do x = x + x end
  return x * 2.0 ^ -40
end
return sgl.job {
  model = nn.module("line", { w = w }, function(x) return x * w() end), steps = 1,
  step = function(batch)
    local own, xs = w(), batch.x * 1
    local last = sgl.scan(function(sum, _, i)
      return sum + (doubled(own) * sgl.dynamic_slice(doubled(xs), i, 0, 1):reshape(3)):sum()
    end, sgl.constant(0, "f32"), xs)
    local of = sgl.grad(last, { w = own, x = xs })
    return { loss = last, dw = of.w:sum(), dx = of.x:sum(), first = of.x:index(0):sum() }
  end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 2, 3 } } }, next = function() return { x = { 1, 2, 5, 0, 1, 1 } } end,
  },
}
LUA
run 0 train doubled.lua --out doubled.run --log doubled.jsonl
says doubled.jsonl '"loss":5' '"dw":10' '"dx":3' '"first":1.5'
