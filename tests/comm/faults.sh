#!/bin/sh
# faults.sh -- jobs in which one rank dies, stops, is late, calls something else, fails or ends: the others return an error that
# names it, its host, the exchange and the line, within the deadline; the job ends with one line and leaves no process.
# ctest: serial
. "$ROOT/tests/comm/common.sh"

host=$(uname -n)
line='all_reduce of grads, llama.lua:42'

# mpirun gives ranks a second before SIGTERM, and another before SIGKILL, from when it sees one end; here more, to those that have
# not had their turn by then.
patient() { OMPI_MCA_odls_base_sigkill_timeout=3 "$@"; }

patient job bad 4 5 steps kill 2
says "rank 2 on $host has ended"
failed_within 3 2
patient job bad 2 5 steps kill 0
says "rank 0 on $host has ended"

# What a deadline is set to holds for joining, too: twice what this machine takes, as busy as it is, for a whole job.
before=$(date +%s%3N)
job 0 4 30 steps none 9
deadline=$(awk -v ms="$(($(date +%s%3N) - before))" 'BEGIN { s = int(ms / 50) / 10; printf "%g", (s > 1.5 ? s : 1.5) }')
about() { awk -v s="$deadline" -v more="$1" 'BEGIN { print s + more }'; } # seconds more, or less, than the deadline

stopped=1
job bad 4 "$deadline" steps stop 1
says "rank 1 on $host: last seen " "($line), all_reduce of group dp, for " "(timeout $deadline s)"
says_number 'last seen ' "$(about -0.5)" "$(about 0.5)"
says_number 'of group dp, for ' "$deadline" "$(about 0.1)"
failed_within 3 "$(about 1.5)"
stopped=none

job bad 3 "$deadline" steps delay 0
says "rank 0 on $host: last seen " 'in no exchange for ' "the last was 4 ($line)" 'waits at exchange 5'
says_number 'last seen ' 0 1
says_number 'in no exchange for ' "$(about -0.5)" "$(about 0.5)"
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
patient job bad 3 5 steps end 1
says "rank 1 on $host has ended"

# SIGTERM, which mpirun sends because rank 1 has died, is told as that.
patient job bad 3 30 hold 1
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
    timeout -k 5 60 "$own" launch 3 2 storm 7 1000000 >out 2>err </dev/null &
    launcher=$!
    for _ in $(seq 1 400); do
        [ "$(pgrep -c -f "^$own 2 storm")" -eq 3 ] && break
        sleep 0.01
    done
    kill -STOP "$(pgrep -f "^$own 2 storm" | tail -n 1)"
    since=$(date +%s)
    while [ "$(pgrep -c -f "^$own 2 storm")" -gt 0 ] && [ "$(($(date +%s) - since))" -le 20 ]; do sleep 0.1; done
    nobody_left "a rank that stopped while it joined"
    # mpirun has been seen to wait for itself, for ever, once its ranks were gone (PMIx_server_finalize, on a busy machine).
    for _ in $(seq 1 100); do kill -0 "$launcher" 2>/dev/null && sleep 0.1; done
    hangs=
    kill -0 "$launcher" 2>/dev/null && hangs=yes && kill -KILL "$(pgrep -P "$launcher")"
    status=0
    wait "$launcher" || status=$?
    [ "$status" -ne 0 ] && { [ -n "$hangs" ] || [ "$status" -ne 124 ]; } || fail "a rank that stopped: status $status"
    grep -q '(timeout 2 s)\|than 2 s (timeout)' err || fail "nobody says that a rank stopped"
done
