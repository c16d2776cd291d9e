#!/bin/sh
# What a long run must not end with: a log written over the data, a reader of stdout that left, files that were closed, a
# loss that is no number and takes the good checkpoints with it, settings that changed unseen.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text
OPTIONS="$TINY --data text"

# --log names a file that is no log: it stays.
cp text data
# shellcheck disable=SC2086
refused 1 '--log data: it is no log of steps' -- train "$LLAMA" $TINY --data data --steps 2 --out a --log data
same data text
cp "$LLAMA" script.lua
# shellcheck disable=SC2086
refused 1 'no log of steps' -- train script.lua $OPTIONS --steps 2 --out a --log script.lua
same script.lua "$LLAMA"
# shellcheck disable=SC2086
for _ in once again; do run 0 train "$LLAMA" $OPTIONS --steps 2 --out "log$_" --log log --quiet; done
[ "$(grep -c step_ms log)" -eq 2 ] || fail "a new run begins a new log"

# The reader of stdout leaves after a line.
status=0
# shellcheck disable=SC2086
{ "$SGL" train "$LLAMA" $OPTIONS --steps 60 --out pipe --log pipe.log 2>err || echo $? >status; } | head -n 1 >out
[ ! -e status ] || fail "the run ended with status $(cat status)"
[ -d pipe/step-00000060 ] || fail "the run did not go on"
says err 'nobody reads standard output'

# Standard files that are closed: nothing that is printed lands in a checkpoint.
# shellcheck disable=SC2086
"$SGL" train "$LLAMA" $OPTIONS --steps 2 --out closed --log closed.log <&- >&- 2>&- || fail "it needs standard files"
run 0 train "$LLAMA" --resume closed --steps 4 --log closed.log
[ "$(grep -c step_ms closed.log)" -eq 4 ] || fail "the log holds something else"

# A loss that is no number: said once, with the step; the checkpoints before it stay, whatever --keep says.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $OPTIONS --set lr=1e18 --set warmup=0 --set clip=1e30 --steps 8 --save-every 1 --keep 1 --out lost
[ "$(grep -c 'warning: step .*\(nan\|infinite\)' err)" -eq 1 ] || fail "it is not told once"
says err '--trace-nan names the op'
says err 'a lower lr'
says out 'lost since step'
step=$(sed -n 's/.*warning: step \([0-9]*\):.*/\1/p' err)
[ "$step" -gt 1 ] && [ "$step" -lt 8 ] || fail "it was lost at step $step"
[ -d "lost/$(printf 'step-%08d' $((step - 1)))" ] || fail "the last good checkpoint is gone: $(ls lost)"

# Refused before the first step.
# shellcheck disable=SC2086
refused 2 '--stop-at' "'0'" 'at least 1' -- train "$LLAMA" $OPTIONS --stop-at 0
refused 1 '--stop-at 3' 'step 4 is done already' -- train "$LLAMA" --resume closed --steps 9 --stop-at 3
long=$(printf '%04100d' 0)
# shellcheck disable=SC2086
refused 1 '--out' 'too long' -- train "$LLAMA" $OPTIONS --out "$long"
# shellcheck disable=SC2086
refused 1 '--init-from nowhere' 'No such file' -- train "$LLAMA" $OPTIONS --init-from nowhere --out init
mkdir hollow
# shellcheck disable=SC2086
refused 1 '--init-from hollow' 'neither a checkpoint' -- train "$LLAMA" $OPTIONS --init-from hollow --out init
[ ! -e init ] || fail "a folder was made"

# Other settings than the checkpoint's are said; the same ones are not.
run 0 train "$LLAMA" --resume closed --set batch=2 --set layers=2 --steps 6 --quiet
says err 'warning: --resume: batch is 2 now; the checkpoint was made with 4'
says_not err layers
