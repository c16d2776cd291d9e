#!/bin/sh
# faults.sh -- jobs in which one rank dies, stops, is late, calls something else, fails or ends: the others return an error that
# names it, its host, the exchange and the line, within the deadline; the job ends with one line and leaves no process.
# ctest: serial
. "$ROOT/tests/comm/common.sh"

host=$(uname -n)
line='all_reduce of grads, llama.lua:42'

job bad 4 5 steps kill 2
says "rank 2 on $host has ended"
failed_within 3 2
job bad 2 5 steps kill 0
says "rank 0 on $host has ended"

job bad 4 1.5 steps stop 1
says "rank 1 on $host: last seen 1." "($line), all_reduce of group dp, for 1.5 s (timeout 1.5 s)"
failed_within 3 3

job bad 3 1.5 steps delay 0
says "rank 0 on $host: last seen 0." "in no exchange for 1." "the last was 4 ($line)" 'waits at exchange 5'
grep -q 'rank 1 failed' out && grep -q 'rank 2 failed' out || fail "the others did not return"

job bad 4 5 steps mismatch 3
says "($line, f32, count 100000) as exchange 5 of group dp" 'broadcast (broadcast of weights, llama.lua:7, f32, count 100000)' \
    'the programs of these ranks differ'
failed_within 4 2
job bad 2 5 steps count 1
says 'count 50000' 'count 100000' 'differ'

job bad 4 5 steps fail 2
says "rank 2 on $host failed: llama.lua:42: the loss is not finite"
failed_within 4 2
job bad 3 5 steps end 1
says "rank 1 on $host has ended"

# SIGTERM, which mpirun sends because rank 1 has died, is told as that.
job bad 3 30 hold 1
says "rank 1 on $host has ended"

# A launcher that is killed, or ended, takes its ranks along.
for signal in KILL TERM; do
    timeout -k 5 60 "$own" launch 2 30 hold 9 >out 2>err </dev/null &
    launcher=$!
    for _ in $(seq 1 100); do
        [ "$(pgrep -c -f "^$own 30 hold")" -eq 2 ] && break
        sleep 0.05
    done
    kill -$signal "$(pgrep -P "$launcher")"
    wait "$launcher" 2>/dev/null || true
    nobody_left "SIG$signal at the launcher"
done

# A rank that stops before it has joined is waited for no longer than the timeout, too.
for _ in 1 2 3; do
    timeout -k 5 60 "$own" launch 3 2 steps none 9 >out 2>err </dev/null &
    launcher=$!
    for _ in $(seq 1 400); do
        [ "$(pgrep -c -f "^$own 2 steps")" -eq 3 ] && break
        sleep 0.01
    done
    kill -STOP "$(pgrep -f "^$own 2 steps" | tail -n 1)"
    since=$(date +%s)
    status=0
    wait "$launcher" || status=$?
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && [ "$(($(date +%s) - since))" -le 20 ] || fail "a rank that stopped: status $status"
    grep -q '(timeout 2 s)\|than 2 s (timeout)' err || fail "nobody says that a rank stopped"
    nobody_left "a rank that stopped while it joined"
done
