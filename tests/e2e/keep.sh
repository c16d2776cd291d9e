#!/bin/sh
# ctest: serial
# What a run keeps: a log that is full, a stdout that cannot be written, a data function that fails or never ends cost no step
# that was made; two runs do not share a folder; a run that goes on from an older checkpoint loses none of the newer ones; and
# a device that computes nothing says and saves nothing.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text

# kept NAME STEP: the last checkpoint is of that step, and goes on.
kept() {
    [ -d "$1/$(printf 'step-%08d' "$2")" ] || fail "step $2 is not saved: $(ls "$1" 2>/dev/null)"
}

# shellcheck disable=SC2086
run 1 train "$LLAMA" $TINY --data text --steps 9 --out full --log /dev/full
says err '--log /dev/full' 'No space left'
kept full 1

# shellcheck disable=SC2086
status=0
"$SGL" train "$LLAMA" $TINY --data text --steps 9 --out deaf >/dev/full 2>err || status=$?
[ "$status" -eq 1 ] || fail "status $status where nothing could be printed"
kept deaf 1

# Data made by a function: it fails at the fourth batch, or never ends there.
cat >made.lua <<'END'
local sgl = require "sgl"
local cfg = sgl.config { endless = false }
local layer = sgl.nn.linear(1, 1)
return sgl.job {
  model = layer, steps = 9,
  loss = function(b) return sgl.mean(layer(b.x)) end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 1, 1 } } },
    next = function(cursor)
      while cfg.endless and cursor == 3 do end
      if cursor == 3 then error("the sensor is gone") end
      return { x = { 1 } }
    end,
  },
  optim = sgl.optim.sgd { lr = 0.1 },
}
END
run 1 train made.lua --out made --quiet
says err 'made.lua:11: the sensor is gone'
kept made 3
env --default-signal=INT "$SGL" train made.lua --set endless=true --out endless --log endless.log >out 2>err &
process=$!
three_lines() { [ -f endless.log ] && [ "$(wc -l <endless.log)" -eq 3 ]; }
until_true three_lines
sleep 0.2
kill -INT "$process"
status=0
wait "$process" || status=$?
[ "$status" -eq 130 ] || fail "Ctrl-C within a data function: status $status"
says out 'interrupted after step 3' 'saved in endless'
kept endless 3

# A folder has one run at a time; the log of the other one stays as it is.
# shellcheck disable=SC2086
"$SGL" train "$LLAMA" $TINY --data text --steps 1000000 --out one --log one.log >/dev/null 2>&1 &
process=$!
has_log() { [ -s one.log ]; }
until_true has_log
# shellcheck disable=SC2086
refused 1 'one: another run' 'one/.lock' -- train "$LLAMA" $TINY --data text --steps 2 --out one --log one.log
says one.log '"step":1,'
kill -KILL "$process"
wait "$process" || true
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 2 --out one --quiet

# Back to step 10 of a folder that has 20 and 30: the branch that is left is kept, and not taken for the one that goes on.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 30 --save-every 10 --out branch --log branch.log --quiet
cp -r branch/step-00000020 twenty
run 0 train "$LLAMA" --resume branch/step-00000010 --stop-at 12 --log branch.log --quiet
says err 'branch/step-00000020' 'branch/step-00000020.aside' 'step 10'
same twenty/parameters.safetensors branch/step-00000020.aside/parameters.safetensors
run 0 train "$LLAMA" --resume branch --stop-at 13 --log branch.log
says out 'resumed branch/step-00000012'
[ ! -s err ] || fail "it complained"
[ "$(wc -l <branch.log)" -eq 13 ] || fail "the log has $(wc -l <branch.log) lines, not 13"

# The null device paces; it has no loss, and leaves no folder.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 5 --eval-every 2 --device null --out null --log null.log
says out 'step 5/5' 'device null: nothing computed, nothing saved'
says_not out loss saved\ null
says_not null.log loss
[ ! -e null ] || fail "the null device left a folder"
