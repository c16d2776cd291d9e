#!/bin/sh
# Micro-batches are weighted by their valid targets: a batch whose ignored targets lie unevenly gives the same losses and
# gradients in one piece, in two and in four; in float64, where only the order of sums differs. The same for evaluation:
# its batches have other counts, and the loss is over all tokens.
. "$ROOT/tests/e2e/common.sh"
cat >uneven.lua <<'LUA'
-- Sequences of 12 tokens of which the first rows keep one target each and the last ones all.
local sgl = require "sgl"
local cfg = sgl.config { rows = 4, seq = 12, vocab = 11, steps = 8 }
local model = sgl.models.llama { vocab = cfg.vocab, dim = 16, layers = 1, heads = 2, kv_heads = 1, ffn = 24 }
local feed = { dtype = "i32", dims = { cfg.rows, cfg.seq } }

local function next(cursor, is_eval)
  if is_eval and cursor == 3 then return nil end
  local tokens, targets = {}, {}
  for row = 0, cfg.rows - 1 do
    for i = 0, cfg.seq - 1 do
      local at = #tokens + 1
      tokens[at] = (row * 7 + i * 3 + cursor) % cfg.vocab
      local valid = row >= cfg.rows // 2 or i == 0
      if is_eval then valid = i <= cursor * 4 end
      targets[at] = valid and (tokens[at] * 2 + 1) % cfg.vocab or -1
    end
  end
  return { tokens = tokens, targets = targets }
end

return sgl.job {
  model = model,
  loss = function(batch) return sgl.nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.batches { feeds = { tokens = feed, targets = feed }, next = next },
  optim = sgl.optim.adamw { lr = 1e-2, weight_decay = 0.1, clip = 1.0 },
  steps = cfg.steps, eval_every = 4,
}
LUA

# pieces NAME OPTION...
pieces() {
    name=$1
    shift
    run 0 train uneven.lua --set plan.precision=fp64 --out "$name" --log "$name.log" "$@"
}

# close LOG LOG: the same numbers within 1e-10.
close() {
    for step in 1 2 8; do
        for key in loss grad_norm; do
            a=$(log $key "$1" $step) b=$(log $key "$2" $step)
            holds "($a - $b) < 1e-10 * $a && ($b - $a) < 1e-10 * $a"
        done
    done
    for step in 4 8; do
        a=$(log eval_loss "$1" $step) b=$(log eval_loss "$2" $step)
        holds "($a - $b) < 1e-10 * $a && ($b - $a) < 1e-10 * $a"
    done
}

pieces one
pieces two --set plan.micro=2
pieces four --set plan.micro=4
close one.log two.log
close one.log four.log
differ one.log two.log
# 4 rows of 1, 5 and 9 valid targets: 60 in all.
[ "$(log eval_tokens one.log 4)" = 60 ] || fail "evaluation counts $(log eval_tokens one.log 4) targets, not 60"
refused 1 'micro' '3' -- train uneven.lua --set plan.micro=3 --out three

# Data that ends is an error that says so; so is a batch of another size, or with an element that is no number.
sed 's/if is_eval and cursor == 3/if cursor == 3/' uneven.lua >ends.lua
run 1 train ends.lua --out ends
says err 'no batch 3'
sed 's/tokens\[at\] = (row/tokens[at + 1] = (row/' uneven.lua >gap.lua
run 1 train gap.lua --out gap
says err 'gap.lua'
sed 's/return { tokens = tokens, targets/return { tokens = { 1, 2 }, targets/' uneven.lua >short.lua
run 1 train short.lua --out short
says err "'tokens' has 2 elements" 'i32[4,12]'
sed 's/return { tokens = tokens, targets/return { token = tokens, targets/' uneven.lua >misspelt.lua
run 1 train misspelt.lua --out misspelt
says err "'token'" "'tokens'"
