#!/bin/sh
# A step that updates by hand: sgl.grad of parameters, modules and lists, sgl.update, states of one's own, a feed that the
# step does not read; it resumes bit for bit. What no update can mean is refused at its line, one that does nothing is told.
. "$ROOT/tests/e2e/common.sh"
cat >hand.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local w = nn.parameter { 3, init = nn.init.constant(1) }
local b = nn.parameter { init = nn.init.constant(0) }
local model = nn.module("line", { w = w, b = b }, function(x) return (x * w()):sum(-1) + b() end)
local average = sgl.state { 3, name = "average", init = nn.init.ones }
local count = sgl.state { name = "count", init = nn.init.zeros, dtype = "i64" }
local function step(batch)
  local miss = model(batch.x) - batch.y
  local loss = (miss * miss):mean()
  local g = sgl.grad(loss, { w, model })
  sgl.update(w, w() - 0.1 * g[1])
  sgl.update(b, b() - 0.1 * g[2][2])
  sgl.update(average, average() * 0.5 + w() * 0.5)
  sgl.update(count, count() + 1)
  return { loss = loss, mean = average():mean(), count = count(), norm = sgl.grad(loss, w):abs():sum() }
end
local function next(cursor)
  local x, y = {}, {}
  for i = 1, 12 do x[i] = math.sin(cursor * 12 + i) end
  for i = 1, 4 do y[i] = 2 * x[3 * i - 2] - x[3 * i - 1] + 0.5 * x[3 * i] + 1 end
  return { x = x, y = y, unread = { 1 } }
end
local function f32(...) return { dtype = "f32", dims = { ... } } end
return sgl.job {
  model = model, step = step, steps = 150,
  data = sgl.data.batches { feeds = { x = f32(4, 3), y = f32(4), unread = f32(1) }, next = next },
}
LUA
run 0 train hand.lua --out whole --log whole.log
[ ! -s err ] || fail "it complained"
holds "$(log loss whole.log 150) < 1e-3 * $(log loss whole.log 1)"
holds "$(log count whole.log 1) == 0 && $(log count whole.log 150) == 149"
holds "$(log mean whole.log 1) == 1" # the first value of the state
run 0 train hand.lua --out half --log half.log --stop-at 77 --quiet
run 0 train hand.lua --resume half --log half.log --quiet
steps_of whole.log >a
steps_of half.log >b
same a b

# case LINE CODE: the script with that line.
case_of() { awk -v line="$1" -v code="$2" 'NR == line { print code; next } { print }' hand.lua >case.lua; }
# bad LINE CODE TEXT...: refused there.
bad() {
    line=$1
    case_of "$1" "$2"
    shift 2
    refused 1 "case.lua:$line: " "$@" -- train case.lua --out nothing
    [ ! -e nothing ] || fail "a folder was made"
}
bad 12 '  sgl.update(w, w():reshape(3, 1))' "update: 'w' is f32[3], the new value is f32[3,1]"
bad 12 '  sgl.update(model, w())' 'update:' 'a table' 'parameter' 'sgl.state'
bad 12 '  sgl.update(b, b() + 1) sgl.update(b, 0)' 'update: the name "b" is given twice'
bad 11 '  local g = sgl.grad(loss, { "w", model })' "grad: 'w' is a string" 'parameters, modules'
bad 11 '  local g = sgl.grad(loss, 3)' 'grad: 3 is a number'
bad 9 '  local miss = model(batch.x) - batch.z' "batch: the data has no feed 'z'" 'there are unread, x, y'
bad 10 '  local loss = miss[1]' 'a tensor is no list' 'x:index' 'x:slice'
bad 10 '  local loss = miss:view(2, 2):mean()' "no method 'view'" "'reshape'"
bad 6 'local average = sgl.state { 3, init = nn.init.ones }' 'state: name must be a string'
bad 6 'local average = sgl.state { 0, name = "average", init = nn.init.ones }' 'state: extent 1'
bad 6 'local average = sgl.state { 3, name = "count", init = nn.init.ones } local count = average average = sgl.state { 3, name = "count", init = print }' \
    "'count' already"
bad 6 'local average = sgl.state { 3, name = "__metadata__", init = nn.init.ones }' "'__metadata__'"
case_of 26 '  model = nn.module("m", { __metadata__ = w, model = model }, print), step = step, steps = 150,'
refused 1 "parameter '__metadata__'" 'another' -- train case.lua --out nothing
case_of 16 '  return loss'
refused 1 'case.lua:25: step: it returns a table' -- train case.lua --out nothing
case_of 16 '  return { step = loss }'
refused 1 "sgl.log: 'step' is what the run itself reports" -- train case.lua --out nothing

# Nothing updated: a warning, once.
sed '/sgl.update/d' hand.lua >still.lua
run 0 train still.lua --out still --steps 2
[ "$(grep -c 'warning: step: it updates nothing' err)" -eq 1 ] || fail "it is not told once that nothing is learnt"
