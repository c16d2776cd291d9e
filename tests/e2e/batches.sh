#!/bin/sh
# Batches of Lua and what models make of them: feeds misspelt on either side, feeds that a graph does not read, tokens that
# the model has no rows for, a loss that returns its mean alone.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text
cat >base.lua <<'LUA'
local sgl = require "sgl"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data
local embed, layer = nn.embedding(20, 8), nn.linear(8, 8)
local model = nn.module("m", { embed = embed, layer = layer }, function(t) return nn.tied_head(embed, layer(embed(t))) end)
local function loss(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end
local function next(cursor) return { tokens = { 0, 1, 2, 19 }, targets = { 1, -1, 19, -1 }, weight = { 1 } } end
local ids, one = { dtype = "i32", dims = { 2, 2 } }, { dtype = "f32", dims = { 1 } }
local source = data.batches { feeds = { tokens = ids, targets = ids, weight = one }, next = next }
return sgl.job {
  model = model, loss = loss, data = source, optim = optim.adamw { lr = 1e-3 }, steps = 4, eval_every = 2, eval_batches = 3,
}
LUA
# Neither graph reads `weight`; of four targets two are ignored, which the held-out loss counts.
run 0 train base.lua --out base --log base.log
says out 'nats per token over 6 tokens'
[ "$(grep -c eval_loss base.log)" -eq 2 ] || fail "it was not evaluated twice"

case_of() { awk -v line="$1" -v code="$2" 'NR == line { print code; next } { print }' base.lua >case.lua; }

# The same number where the function returns the mean alone, or something made of it.
case_of 5 'local function loss(b) local l = nn.cross_entropy(model(b.tokens), b.targets) sgl.log("ppl", l:exp()) return l end'
run 0 train case.lua --out mean --log mean.log
says out ' ppl ' 'nats per token over 6 tokens'
[ "$(log eval_loss mean.log 4)" = "$(log eval_loss base.log 4)" ] || fail "the held-out loss depends on what is returned"
case_of 5 'local function loss(b) return nn.cross_entropy(model(b.tokens), b.targets) + 0 * b.weight:sum() end'
run 0 train case.lua --out sum
says out 'nats per token over 6 tokens'
# A loss over no targets is a mean over batches.
case_of 5 'local function loss(b) return model(b.tokens):tensor():mean() end'
run 0 train case.lua --out other
says out 'over 3 batches'
says_not out 'nats'

bad() {
    case_of "$1" "$2"
    shift 2
    refused 1 "$@" -- train case.lua --out nothing
    [ ! -e nothing/step-00000001 ] || fail "a step was made"
}
bad 5 'local function loss(b) return nn.cross_entropy(model(b.tokens), b.tragets) end' \
    "case.lua:5: batch: the data has no feed 'tragets'; did you mean 'targets'?"
bad 5 'local function loss(b) return nn.cross_entropy(model(b.tokens), b.targets), "two" end' 'the count of targets' 'two'
bad 6 'local function next(cursor) return { tokens = { 0, 1, 2, 3 }, tragets = { 1, 2, 3, 4 }, weight = { 1 } } end' \
    "batch: the data declares no feed 'tragets'; did you mean 'targets'?"
bad 6 'local function next(cursor) return { tokens = { 0, 1, 2, 3 } } end' "batch: it lacks the feed 'targets' (i32[2,2])"
bad 6 'local function next(cursor) return { tokens = { 0, 1, 2, 20 }, targets = { 1, -1, 19, -1 } } end' \
    "batch: element 4 of 'tokens' is 20; the model takes 0 .. 19 there"
bad 6 'local function next(cursor) return { tokens = { 0, -1, 2, 3 }, targets = { 1, -1, 19, -1 } } end' \
    "batch: element 2 of 'tokens' is -1;"
bad 6 'local function next(cursor) return { tokens = { 0, 1, 2, 3 }, targets = { 1, -1, -2, -1 } } end' \
    "batch: element 3 of 'targets' is -2; the model takes 0 .. 19 there"
bad 6 'local function next(cursor) return { tokens = ("i4"):rep(4):pack(0, 1, 20, 3), targets = { 1, -1, 0, -1 } } end' \
    "batch: element 3 of 'tokens' is 20;"

# Token data say below what they are: at the trace.
bad 8 'local source = data.text { path = "text", seq = 4, batch = 2 }' \
    "case.lua:4: embedding: 'tokens' of the data are below 256 (its vocab), here are 20 rows"
case_of 8 'local source = data.text { path = "text", vocab = 200, seq = 4, batch = 2 }'
sed 's/nn.embedding(20, 8)/nn.embedding(200, 8)/' case.lua >wide.lua
run 0 train wide.lua --out wide --quiet
sed 's/embed, layer = nn.embedding(20, 8)/small, embed, layer = nn.head(8, 150), nn.embedding(200, 8)/
s/layer = layer }/layer = layer, small = small }/; s/nn.tied_head(embed, layer(embed(t)))/small(layer(embed(t)))/' case.lua >head.lua
refused 1 "head.lua:5: cross_entropy: 'targets' of the data are below 200 (its vocab), here are 150 rows" -- train head.lua

# Targets that the script computes are not looked at when they are fed: where one is no class the loss says so.
cat >derived.lua <<'LUA'
local sgl = require "sgl"
local cfg = sgl.config { left_out = -100, ignore = -1, head = false }
local embed, last = sgl.nn.embedding(8, 4), cfg.head and sgl.nn.head(4, 8) or sgl.nn.linear(4, 8)
local model = sgl.nn.module("m", { embed = embed, last = last }, function(x) return last(embed(x)) end)
return sgl.job {
  model = model,
  loss = function(batch)
    local targets = sgl.select(sgl.equal(batch.y, 7), sgl.constant(cfg.left_out, "i32"), batch.y)
    return sgl.nn.cross_entropy(model(batch.x), targets, { ignore = cfg.ignore })
  end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "i32", dims = { 4 } }, y = { dtype = "i32", dims = { 4 } } },
    next = function() return { x = { 1, 2, 3, 4 }, y = { 0, 7, 6, 5 } } end,
  },
  optim = sgl.optim.sgd { lr = 0.1 }, steps = 2, eval_every = 0, eval_batches = 1,
}
LUA
for head in false true; do
    rm -rf d ignored left eight
    run 0 train derived.lua --set head=$head --out d --log d.log --quiet
    says err 'step 1: the loss is inf' 'a look at the data'
    run 0 train derived.lua --set head=$head --set ignore=-100 --out ignored --log ignored.log --quiet
    [ ! -s err ] || fail "it complained"
    run 0 train derived.lua --set head=$head --set left_out=-1 --out left --log left.log --quiet
    [ ! -s err ] || fail "it complained"
    [ "$(log loss ignored.log 2)" = "$(log loss left.log 2)" ] || fail "not left out alike"
    run 0 train derived.lua --set head=$head --set left_out=8 --out eight --quiet
    says err 'step 1: the loss is inf'
done
refused 3 'derived.lua:9' -- train derived.lua --trace-nan --out traced --quiet
