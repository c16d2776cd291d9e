#!/bin/sh
# ctest: serial
# Ctrl-C once: the step is finished, a checkpoint saved, status 130, and the run goes on bit for bit; SIGTERM the same with
# 143; a second Ctrl-C ends the process at once, and what was saved before is whole.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text
OPTIONS="$TINY --data text --steps 1000000 --eval-every 0"

# lines_in FILE: how many, 0 when it is not there yet.
lines_in() { [ -f "$1" ] && wc -l <"$1" || echo 0; }

# wait_for LOG COUNT: until the log has so many lines.
has_lines() { [ "$(lines_in "$1")" -ge "$2" ]; }
wait_for() { until_true has_lines "$@"; }

# start NAME: a run in the background; its id is in $process.
start() {
    # A shell without job control lets its background children ignore SIGINT; env restores it.
    # shellcheck disable=SC2086
    env --default-signal=INT "$SGL" train "$LLAMA" $OPTIONS --out "$1" --log "$1.log" >out 2>err &
    process=$!
    wait_for "$1.log" 10
}

ends_with() {
    status=0
    wait "$process" || status=$?
    [ "$status" -eq "$1" ] || fail "the run ended with status $status, not $1"
}

# stopped SIGNAL STATUS: one signal; the checkpoint is of the last logged step.
stopped() {
    start "$1"
    kill -"$1" "$process"
    ends_with "$2"
    step=$(wc -l <"$1.log")
    [ -d "$1/$(printf 'step-%08d' "$step")" ] || fail "step $step is the last in the log, and not saved: $(ls "$1")"
    says out "interrupted after step $step" "saved in $1" '--resume'
    [ ! -s err ] || fail "it complained"
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" --resume "$1" --log "$1.log" --quiet --stop-at $((step + 10))
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" $OPTIONS --out "$1.whole" --log "$1.whole.log" --quiet --stop-at $((step + 10))
    steps_of "$1.log" >a
    steps_of "$1.whole.log" >b
    same a b
}

stopped INT 130
stopped TERM 143

# Twice. The process is stopped meanwhile, so that both signals are there before it can do anything.
start twice
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
