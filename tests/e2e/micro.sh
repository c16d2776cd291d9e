#!/bin/sh
# Micro-batches are weighted by their valid targets: a batch whose ignored targets lie unevenly gives the same losses and
# gradients in one piece, in two, three and four; in float64, where only the order of sums differs. The same for evaluation:
# its batches have other counts, and the loss is over all tokens. Dropout's masks do not depend on the pieces either.
. "$ROOT/tests/e2e/common.sh"
cat >uneven.lua <<'LUA'
-- Sequences of 12 tokens of which the first rows keep one target each and the last ones all.
local sgl = require "sgl"
local cfg = sgl.config { rows = 4, seq = 12, vocab = 11, steps = 8, lr = 1e-2, dropout = 0.0 }
local model = sgl.models.gpt2 { vocab = cfg.vocab, dim = 16, layers = 1, heads = 2, seq = cfg.seq, dropout = cfg.dropout }
local feed = { dtype = "i32", dims = { cfg.rows, cfg.seq } }

-- Rows come in groups of 4 however many a batch has; three groups are for evaluation.
local function next(cursor, is_eval)
  if is_eval and cursor * cfg.rows >= 12 then return nil end
  local tokens, targets = {}, {}
  for number = cursor * cfg.rows, cursor * cfg.rows + cfg.rows - 1 do
    local group, row = number // 4, number % 4
    for i = 0, cfg.seq - 1 do
      local at = #tokens + 1
      tokens[at] = (row * 7 + i * 3 + group) % cfg.vocab
      local valid = row >= 2 or i == 0
      if is_eval then valid = i <= group * 4 end
      targets[at] = valid and (tokens[at] * 2 + 1) % cfg.vocab or -1
    end
  end
  return { tokens = tokens, targets = targets }
end

return sgl.job {
  model = model,
  loss = function(batch) return sgl.nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.batches { feeds = { tokens = feed, targets = feed }, next = next },
  optim = sgl.optim.adamw { lr = cfg.lr, weight_decay = 0.1, clip = 1.0 },
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
# Rows of 1, 5 and 9 valid targets, 4 of each: 60 in all, and the loss is theirs however they are cut into batches.
[ "$(log eval_tokens one.log 4)" = 60 ] || fail "evaluation counts $(log eval_tokens one.log 4) targets, not 60"
pieces still --set lr=0
pieces still12 --set lr=0 --set rows=12
a=$(log eval_loss still.log 4) b=$(log eval_loss still12.log 4)
holds "($a - $b) < 1e-10 && ($b - $a) < 1e-10 && $a > 1"
[ "$(log eval_tokens still12.log 4)" = 60 ] || fail "evaluation of one batch counts $(log eval_tokens still12.log 4) targets"

# Dropout: another mask at each step, the same in micro-batches as in the whole, none in evaluation.
pieces drop --set dropout=0.3
pieces drop2 --set dropout=0.3 --set plan.micro=2
close drop.log drop2.log
differ drop.log one.log
sed 's/next(cursor, is_eval)/next(cursor, is_eval)\n  cursor = is_eval and cursor or 0/' uneven.lua >constant.lua
run 0 train constant.lua --set lr=0 --set dropout=0.3 --out constant --log constant.log
holds "$(log loss constant.log 1) != $(log loss constant.log 2)"
holds "$(log eval_loss constant.log 4) == $(log eval_loss constant.log 8)"
run 0 train constant.lua --set lr=0 --out constant2 --log constant2.log
holds "$(log loss constant2.log 1) == $(log loss constant2.log 2)"
run 0 train constant.lua --set lr=0 --set dropout=0.3 --out constant3 --log constant3.log --seed 1
holds "$(log loss constant3.log 1) != $(log loss constant.log 1)"

# Pieces that are not of equal rows: 2, 1 and 1 of 4 rows; 3, 3, 2, 2 and 2 of 12, each half of which is made again.
pieces three --set plan.micro=3
close one.log three.log
pieces drop3 --set dropout=0.3 --set plan.micro=3
close drop.log drop3.log
pieces twelve --set rows=12
pieces twelve5 --set rows=12 --set plan.micro=5
close twelve.log twelve5.log
refused 1 "has 4 rows" "5 micro-batches; set micro to 4 at most" -- train uneven.lua --set plan.micro=5 --out five
make_text 8000 text
# shellcheck disable=SC2086
refused 1 'has 4 rows' 'a rank along dp (of 4) has 1 at most' "2 micro-batches; set micro to 1 at most" 'a batch of 5 or more' \
    -- plan "$LLAMA" $TINY --set data.path=text --mesh dp=4 --set plan.micro=2
# A loop of larger pieces and one of smaller ones lie in the same place: the step needs no more than one whose pieces are all larger.
peak() { # ROWS MICRO: bytes at the step's peak
    run 0 memory "$LLAMA" --set data.path=text --set layers=2 --set dim=32 --set heads=2 --set kv_heads=1 --set ffn=64 --set seq=32 \
        --set batch="$1" --set plan.micro="$2"
    sed -nE 's/^transient peak *([0-9,]+)$/\1/p' out | tr -d ,
}
uneven=$(peak 9 2) larger=$(peak 10 2) whole=$(peak 9 1)
holds "$uneven > 0 && $uneven <= 1.01 * $larger && $uneven < 0.8 * $whole"

# Data that ends is an error that says so; so is a batch of another size, or with an element that is no number.
sed 's/if is_eval and cursor/if cursor/' uneven.lua >ends.lua
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
