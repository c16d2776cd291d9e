#!/bin/sh
# `sgl eval`: the held-out loss of a checkpoint is that of the run which made it, whichever batches and threads; perplexity and
# bits per byte go with it; of another file it is another one; states that the loss reads are read too.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 20 --save-every 10 --out run --log log --quiet
run 0 eval run
says out 'run/step-00000020' "held-out loss $(printf %.4f "$(log eval_loss log 20)") nats per token over " 'perplexity' 'bits per byte'
run 0 eval run --json --threads 1
field() { sed -E "s/.*\"$1\":\"?([^,}\"]*).*/\1/" out; }
[ "$(field eval_loss)" = "$(log eval_loss log 20)" ] || fail "another loss than the run's: $(cat out)"
[ "$(field eval_tokens)" = "$(log eval_tokens log 20)" ] || fail "another number of tokens than the run's"
[ "$(field step)" -eq 20 ] && [ "$(field checkpoint)" = run/step-00000020 ] || fail "another checkpoint"
holds "$(field perplexity) > 1 && $(field bits_per_byte) / $(field eval_loss) > 1.4426 && $(field bits_per_byte) / $(field eval_loss) < 1.4428"
run 0 eval run --json --batches 1
[ "$(field eval_tokens)" -eq 64 ] || fail "one batch has 64 tokens"
run 0 eval run/step-00000010 --json
[ "$(field step)" -eq 10 ] || fail "it took another checkpoint than that named"
tr a-z n-za-m <text >other
run 0 eval run --json --data other
holds "$(field eval_loss) > $(log eval_loss log 20)"
tree run >before
run 0 eval run --set batch=2
tree run >after
same before after

# A loss that reads a state of its own: the checkpoint's value counts.
cat >state.lua <<'LUA'
local sgl = require "sgl"
local w, seen = sgl.nn.parameter { init = sgl.nn.init.constant(2) }, sgl.state { name = "seen", init = sgl.nn.init.constant(5) }
local model = sgl.nn.module("m", { w = w }, function(x) return x * w() end)
return sgl.job {
  model = model, optim = sgl.optim.sgd { lr = 0 }, steps = 3,
  loss = function(batch)
    sgl.update(seen, seen() + 1)
    return model(batch.x):sum() + seen()
  end,
  data = sgl.data.batches { feeds = { x = { dtype = "f32", dims = { 1 } } }, next = function() return { x = { 1 } } end },
}
LUA
run 0 train state.lua --out state --log state.log
holds "$(log eval_loss state.log 3) == 10" # 2 + 5 + 3 steps
run 0 eval state
says out 'held-out loss 10.0000 over 32 batches'
says_not out perplexity token

# What the loss logs is told of an evaluation too: means over its batches, weighted as the loss is. A classifier's loss is
# no nats per token.
cat >marks.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local out = nn.linear(3, 2)
local model = nn.module("m", { out = out }, function(x) return out(x) end)
return sgl.job {
  model = model, optim = sgl.optim.sgd { lr = 0.1 }, steps = 4, eval_every = 2,
  loss = function(batch)
    sgl.log("mark", batch.mark:mean())
    sgl.log("of/many", batch.mark:max())
    sgl.log("none", batch.mark:mean() * (0 / 0))
    return nn.cross_entropy(model(batch.x), batch.labels)
  end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 4, 3 } }, labels = { dtype = "i32", dims = { 4 } }, mark = { dtype = "f32", dims = { 4 } } },
    next = function(cursor, is_eval)
      local first = cursor % 2 == 0
      if is_eval and cursor == 2 then return nil end
      return { x = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3 }, labels = first and { 0, 1, 0, 1 } or { 1, -1, -1, -1 },
        mark = first and { 1, 1, 1, 1 } or { 0, 0, 0, 0 } }
    end,
  },
}
LUA
run 0 train marks.lua --out marks --log marks.log
grep -Eq '^step 2  held-out loss [0-9.]+ over 5 targets  mark 0.8  none nan$' out || fail 'an evaluation tells not what is logged'
says_not out 'nats' 'of/many'
[ "$(log eval_mark marks.log 4)" = 0.80000000000000004 ] || fail "eval_mark is $(log eval_mark marks.log 4)" # 4 of 5 targets
[ "$(log eval_of/many marks.log 4)" = 0.80000000000000004 ] || fail 'a name with a slash is not in the log'
[ "$(log eval_targets marks.log 4)" = 5 ] || fail 'the log counts other targets'
run 0 eval marks
says out 'held-out loss' ' over 5 targets' 'mark 0.8' 'none nan'
says_not out 'nats' 'perplexity' 'of/many'
run 0 eval marks --json
says out '"eval_targets":5' '"eval_mark":0.80000000000000004' '"eval_of/many":0.80000000000000004' '"eval_none":"nan"'
says_not out 'perplexity' 'eval_tokens'
sed 's/"of.many"/"targets"/' marks.lua >reserved.lua
refused 1 "reserved.lua:9: sgl.log: 'targets' is what the run itself reports" -- train reserved.lua --out nothing
run 0 eval run
says out 'nats per token' 'perplexity'

run 0 eval --help
says out 'usage: sgl eval DIR' --data --batches --json
refused 1 'nowhere: there is no such folder' 'sgl train --out' -- eval nowhere
refused 1 'text: it is a file' -- eval text
mkdir empty
refused 1 'empty' -- eval empty
refused 1 'no.such' 'No such file' -- eval run --data no.such
refused 2 'DIR is missing' -- eval
awk '/sgl.optim.sgd/ { print "model = model, steps = 3,"; next } /loss = / { print "step = function(batch) model(batch.x)"; next } /return model/ { next } { print }' \
    state.lua >step.lua
run 0 train step.lua --out step --quiet
refused 1 'step of its own' -- eval step
