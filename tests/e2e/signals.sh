#!/bin/sh
# ctest: serial
# Ctrl-C once: the step is finished, a checkpoint saved, status 130, and the run goes on bit for bit, with the evaluation that
# was due at that step; SIGTERM the same with 143; a second Ctrl-C ends the process at once, and what was saved before is whole.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text
OPTIONS="$TINY --data text --steps 1000000"

# lines_in FILE: how many, 0 when it is not there yet.
lines_in() { [ -f "$1" ] && wc -l <"$1" || echo 0; }

# wait_for LOG COUNT: until the log has so many lines.
has_lines() { [ "$(lines_in "$1")" -ge "$2" ]; }
wait_for() { until_true has_lines "$@"; }

# start NAME OPTION...: a run in the background; its id is in $process.
start() {
    # A shell without job control lets its background children ignore SIGINT; env restores it.
    name=$1
    shift
    # shellcheck disable=SC2086
    env --default-signal=INT "$SGL" train "$LLAMA" $OPTIONS --out "$name" --log "$name.log" "$@" >out 2>err &
    process=$!
    wait_for "$name.log" 10
}

ends_with() {
    status=0
    wait "$process" || status=$?
    [ "$status" -eq "$1" ] || fail "the run ended with status $status, not $1"
}

# stopped SIGNAL STATUS NAME OPTION...: one signal; the checkpoint is of the last logged step.
stopped() {
    signal=$1
    status_after=$2
    shift 2
    start "$@"
    shift
    kill -"$signal" "$process"
    ends_with "$status_after"
    step=$(grep -c step_ms "$name.log")
    [ -d "$name/$(printf 'step-%08d' "$step")" ] || fail "step $step is the last in the log, and not saved: $(ls "$name")"
    says out "interrupted after step $step" "saved in $name" '--resume'
    [ ! -s err ] || fail "it complained"
    run 0 train "$LLAMA" --resume "$name" --log "$name.log" --quiet --stop-at $((step + 10))
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" $OPTIONS "$@" --out "$name.whole" --log "$name.whole.log" --quiet --stop-at $((step + 10))
    steps_of "$name.log" >a
    steps_of "$name.whole.log" >b
    same a b
}

stopped INT 130 int --eval-every 0
stopped TERM 143 term --eval-every 0
# At each step an evaluation is due, and a save at every fifth.
stopped INT 130 int1 --eval-every 1 --save-every 5
stopped TERM 143 term1 --eval-every 1
[ "$(grep -c eval_loss term1.log)" -eq $((step + 10)) ] || fail "not every step was evaluated"

# Twice. The process is stopped meanwhile, so that both signals are there before it can do anything.
start twice --eval-every 0
kill -STOP "$process"
kill -INT "$process"
kill -CONT "$process"
kill -INT "$process" 2>/dev/null || true
status=0
wait "$process" || status=$?
[ "$status" -eq 130 ] || fail "after two signals the status is $status, not 130"

# A step of seconds, so that both signals surely come within the second one.
# shellcheck disable=SC2086
env --default-signal=INT "$SGL" train "$LLAMA" $TINY --set dim=128 --set ffn=512 --set seq=128 --set batch=32 --set layers=8 \
    --data "$ROOT/vm/sgl.h" --steps 1000 --out long --log long.log >out 2>err &
process=$!
wait_for long.log 1
sleep 0.5
kill -INT "$process"
sleep 0.02
kill -INT "$process"
ends_with 130
[ -z "$(find long -name 'step-*')" ] || fail "it was saved in spite of the second signal"
says out 'is not finished and not kept' 'nothing was saved for it'
says_not out 'goes on'

# While the graph is compiled there is nothing to save: the run ends in order all the same.
# shellcheck disable=SC2086
env --default-signal=INT "$SGL" train "$LLAMA" $OPTIONS --set layers=150 --out early >out 2>err &
process=$!
sleep 0.7
kill -INT "$process"
ends_with 130
[ -z "$(find early -name 'step-*' 2>/dev/null)" ] || fail "it began in spite of the signal"
[ ! -s err ] || says err interrupted
