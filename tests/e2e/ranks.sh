#!/bin/sh
# The command line of runs over several ranks: --mesh, --nproc and --timeout, and what is wrong with them; the launcher, and
# none; a failure told once, by the rank whose it is; rank 0's terminal.
# ctest: serial
# ctest: timeout 600
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold

# What is wrong with the options is told before anything is started, with or without a launcher.
refused 2 "--mesh 'dp'" "'dp' is not of the form axis=ranks" -- train "$LLAMA" --mesh dp
refused 2 "there is no axis 'dq'" 'dp, fsdp, tp, pp, ep and cp' -- train "$LLAMA" --mesh dq=2
refused 2 "there is no axis 'fspd'" "did you mean 'fsdp'?" -- graph "$LLAMA" --mesh tp=2,fspd=2
refused 2 "dp is '0'" 'at least 1' -- memory "$LLAMA" --mesh dp=0
refused 2 "tp is '2x'" 'whole number' -- train "$LLAMA" --mesh dp=2,tp=2x
refused 2 'names the axis dp twice' -- train "$LLAMA" --mesh dp=2,dp=2
refused 2 "'' is not of the form" -- train "$LLAMA" --mesh dp=2,
refused 2 "'' is not of the form" -- eval x --mesh ''
refused 2 'spans 4 ranks, --nproc starts 3' 'give --nproc 4' -- train "$LLAMA" --mesh dp=2,tp=2 --nproc 3
refused 2 'spans more ranks than' -- train "$LLAMA" --mesh dp=2000000000,tp=2000000000
refused 2 '--nproc' "'0'" 'at least 1' -- train "$LLAMA" --nproc 0
refused 2 'most' -- train "$LLAMA" --nproc 5000
for timeout in -1 0 nan; do
    refused 2 "--timeout '$timeout' must be more than 0" -- train "$LLAMA" --timeout $timeout --nproc 2
done
refused 2 "--mesh 'tp=2' is given twice" -- plan "$LLAMA" --mesh dp=2 --mesh tp=2
for command in train plan; do
    refused 2 "--mesh 'dp=2' and --set plan.mesh.tp=2 both say" -- $command "$LLAMA" --set plan.mesh.tp=2 --mesh dp=2
done

# --mesh takes the place of the script's mesh, whole.
cat >meshed.lua <<'END'
local sgl = require "sgl"
local model = sgl.nn.linear(4, 4)
return sgl.job {
  model = model,
  loss = function(batch) return sgl.mean(sgl.square(model(batch.x))) end,
  data = sgl.data.batches { feeds = { x = { dtype = "f32", dims = { 8, 4 } } }, next = function() return nil end },
  optim = sgl.optim.sgd { lr = 0.1 },
  plan = sgl.plan { mesh = { tp = 3 } },
}
END
refused 1 'mesh' 3 -- train meshed.lua --steps 1
run 0 graph meshed.lua --mesh dp=1
run 0 graph meshed.lua --set plan.mesh.tp=1

# A launcher that is not there.
no_path() { env PATH="$SCRATCH/nothing" "$SGL" train "$LLAMA" --nproc 2 >out 2>err; }
! no_path || fail "ranks without a launcher"
says err 'mpirun' 'scripts/deps mpi'
[ "$(wc -l <err)" -eq 1 ] || fail "it is told more than once"

# What MPI writes of a process that is gone, beside the rank that tells of it, is no second word about it; where nobody tells, it is
# the only one. Anything else goes through as it comes, a line without an end too.
mkdir stand_in
stand_in() { # STATUS LINE...: a launcher whose ranks write the lines and end so; a line "..." is a pause
    code=$1
    shift
    printf '#!/bin/sh\n' >stand_in/mpirun
    for text in "$@"; do
        [ "$text" = ... ] && echo 'sleep 0.2' || echo "printf '%b' '$text' >&2"
    done >>stand_in/mpirun
    echo "exit $code" >>stand_in/mpirun
    chmod +x stand_in/mpirun
    status=0
    PATH="$SCRATCH/stand_in:$PATH" "$SGL" train "$LLAMA" --nproc 2 >out 2>err </dev/null || status=$?
    [ "$status" -eq "$code" ] || fail "status $status, not $code"
}
heard() { printf '%b' "$@" | cmp -s - err || fail "not $(printf '%b' "$@")"; }
gone='[a.b-c:77] Read -1, expected 240808, errno = 3\n'
forbidden='[a:77] Read -1, expected 240808, errno = 1\n'
lost='sgl: rank 1 on a has ended\n'
stand_in 137 "$gone" "$lost" "$gone"
heard "$lost"
stand_in 1 "$gone" "$forbidden" 'sgl: warning: a\n' "$gone"
heard "$forbidden" 'sgl: warning: a\n' "$gone" "$gone"
stand_in 137 '[a:77] Re' ... 'ad -1, expected 240808, errno = 3\n\n' "$forbidden" '[a:77] Read -1, expected 8, errno = 3, more\n' '[b'
[ "$(wc -l <err)" -eq 4 ] || fail "not four lines"
heard '\n' "$forbidden" '[a:77] Read -1, expected 8, errno = 3, more\n' '[b' "$(sed -n '4s/^\[b//p' err)\n"
says err 'a rank was ended by signal 9'
# A launcher that does not end, though its ranks have, is ended; whether one has told why decides what is said.
cat >stand_in/mpirun <<END
#!/bin/sh
[ ! -f tells ] || echo 'sgl: rank 0 has told' >&2
sleep 1.5
read -r nothing <never
END
mkfifo never
for wanted in 'mpirun did not end within 10 s of its ranks' 'rank 0 has told'; do
    status=0
    PATH="$SCRATCH/stand_in:$PATH" timeout -k 5 60 "$SGL" train "$LLAMA" --nproc 2 >out 2>err </dev/null || status=$?
    [ "$status" -eq 1 ] && [ "$(wc -l <err)" -eq 1 ] || fail "status $status"
    says err "$wanted"
    touch tells
done
long=$(printf '%0300d' 7)
stand_in 1 "[$long\n" "$long\n" 'no end'
heard "[$long\n" "$long\n" 'no end'

if ! command -v mpirun >/dev/null || ! "$SGL" doctor | grep -q 'libsgl_mpi.so$'; then
    echo "no mpirun, or no module libsgl_mpi.so: nothing of several ranks is tested" >&2
    exit 77
fi

# once CODE TEXT... -- ARGUMENT...: the job fails with CODE, prints nothing, and says each text on one line of stderr, the only
# one.
once() {
    refused "$@"
    [ "$(wc -l <err)" -eq 1 ] || fail "it is told more than once"
}

once 1 'nowhere.lua: there is no such file' -- train nowhere.lua --nproc 4
once 1 "setting 'lay'" -- train "$LLAMA" --nproc 2 --set lay=3
once 1 'nowhere' -- eval nowhere --nproc 2
once 1 "device 'cpuu'" -- train "$LLAMA" --nproc 3 --device cpuu
once 2 "'--stpes' is no option" -- train "$LLAMA" --nproc 2 --stpes 3
SGL_MODULES="$SCRATCH" run 1 train "$LLAMA" --nproc 2
says err 'libsgl_mpi.so: cannot open'

as_root=
[ "$(id -u)" -ne 0 ] || as_root=--allow-run-as-root
launched() {
    status=0
    # shellcheck disable=SC2086
    timeout -k 5 60 mpirun -q $as_root --oversubscribe --bind-to none -n 2 "$SGL" "$@" >out 2>err </dev/null || status=$?
}
launched train "$LLAMA" --nproc 3
[ "$status" -eq 2 ] || fail "status $status"
says err '--nproc 3, but the launcher that started this has made 2 ranks'
[ "$(grep -c '^sgl' err)" -eq 1 ] || fail "it is told more than once"
launched train "$LLAMA" --stpes 3
[ "$status" -eq 2 ] && [ "$(grep -c '^sgl' err)" -eq 1 ] || fail "the usage is told more than once"

# mpirun kills whoever is left as soon as two ranks have failed: those that print nothing end well after the one that does.
told_first() { # CODE ARGUMENT...: of 4 ranks; when each ended is in ended.RANK, and what it said in said.RANK
    code=$1
    shift
    rm -f ended.* said.*
    status=0
    # shellcheck disable=SC2016,SC2086
    timeout -k 5 60 mpirun -q $as_root --oversubscribe --bind-to none -n 4 sh -c '
        trap "" TERM
        status=0
        "$@" 2>"said.$OMPI_COMM_WORLD_RANK" || status=$?
        date +%s%3N >"ended.$OMPI_COMM_WORLD_RANK"
        exit $status' ranks "$SGL" "$@" >out 2>err </dev/null || status=$?
    [ "$status" -eq "$code" ] || fail "status $status, not $code"
    cat said.* >err
    [ "$(grep -c '^sgl' err)" -eq 1 ] || fail "it is told $(grep -c '^sgl' err) times"
    teller=$(grep -l '^sgl' said.*)
    teller=${teller#said.}
    for rank in 0 1 2 3; do
        [ "$rank" -ne "$teller" ] && [ -s "ended.$rank" ] || continue
        [ $(($(cat "ended.$rank") - $(cat "ended.$teller"))) -ge 300 ] || fail "rank $rank ended beside rank $teller"
    done
}
echo 'error("no model")' >failing.lua
told_first 1 train failing.lua --mesh dp=4
told_first 2 train "$LLAMA" --stpes 3

# ---- the same curve -----------------------------------------------------------------------------------------------------

# near A B: the same steps, and losses within 1e-9 of each other, relative.
numbers() { sed -E 's/.*"step":([0-9]+).*"(eval_)?loss":([^,}]*).*/\1 \3/' "$1"; }
near() {
    numbers "$1" >a
    numbers "$2" >b
    [ "$(wc -l <a)" -ge 20 ] || fail "$1 has too few lines"
    paste a b | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || !(d <= 1e-9 * $2)) exit 1 }' ||
        fail "$1 and $2 differ: $(diff a b | head -n 4)"
}
# train NAME RANKS ARGUMENT...: in doubles, of so many ranks.
train() {
    name=$1 number=$2
    shift 2
    [ "$number" -eq 1 ] || set -- "$@" --nproc "$number" --mesh "dp=$number" --timeout 60
    run 0 train "$@" --set plan.precision=fp64 --out "$name" --log "$name.log"
    [ ! -s err ] || fail "it complained"
}
for ranks in 1 2 4; do
    # shellcheck disable=SC2086
    train "llama$ranks" $ranks "$LLAMA" $TINY --data text --steps 20 --eval-every 10 --save-every 10
    [ "$(grep -c '^step 20/20' out)" -eq 1 ] && [ "$(grep -c '^20 steps in' out)" -eq 1 ] || fail "rank 0 does not tell it once"
    train "mlp$ranks" $ranks "$ROOT/examples/mlp.lua" --set hidden=32 --set image=8 --set batch=12 --steps 20
done
for ranks in 2 4; do
    near llama1.log llama$ranks.log
    near mlp1.log mlp$ranks.log
done

# A checkpoint is of no number of ranks: one goes on with what two have begun, and two with what one has.
# shellcheck disable=SC2086
train two 2 "$LLAMA" $TINY --data text --steps 20 --eval-every 10 --stop-at 8
train two 1 "$LLAMA" --resume --stop-at 13
train two 4 "$LLAMA" --resume
near llama1.log two.log
run 0 eval llama2
says out 'held-out loss'
cp out whole
run 0 eval llama2 --nproc 2 --mesh dp=2
same out whole
run 0 generate llama2 --prompt the --tokens 3
run 1 eval llama2 --mesh dp=2
says err 'mesh dp=2' 'this process is alone'

# Each rank's own log; one log is rank 0's.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 4 --nproc 2 --mesh dp=2 --out logs --log logs.%r.log --quiet
[ ! -s out ] || fail "it is not quiet"
steps_of logs.0.log | grep -v eval >a
steps_of logs.1.log >b
same a b

# ---- what ends a run ----------------------------------------------------------------------------------------------------

# shellcheck disable=SC2086
once 1 'spans 4 ranks' 'this run has 2' -- train "$LLAMA" $TINY --data text --nproc 2 --set plan.mesh.dp=4
# shellcheck disable=SC2086
once 1 'this run has 2 ranks, and the plan is of one' -- train "$LLAMA" $TINY --data text --nproc 2 --out none
# shellcheck disable=SC2086
once 1 'none.txt' -- train "$LLAMA" $TINY --data none.txt --nproc 2 --mesh dp=2
# shellcheck disable=SC2086
once 1 'llama1 holds a run already' -- train "$LLAMA" $TINY --data text --nproc 2 --mesh dp=2 --out llama1

# Another script, seed, schedule or data on one rank is an error before the first step, and names both.
sed 's/e/a/g' text >text.other
same() { # WHAT OPTION...: of rank 1 alone; it says WHAT
    what=$1
    shift
    status=0
    # shellcheck disable=SC2086
    timeout -k 5 60 mpirun -q $as_root --oversubscribe --bind-to none \
        -n 1 "$SGL" train "$LLAMA" $TINY --data text --mesh dp=2 --out other --steps 5 : \
        -n 1 "$SGL" train "$LLAMA" $TINY --data text --mesh dp=2 --out other --steps 5 "$@" >out 2>err </dev/null || status=$?
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "status $status"
    says err 'rank 0' 'rank 1' "$what"
    says_not out 'step 1/'
    [ "$(grep -c '^sgl' err)" -eq 1 ] || fail "it is told more than once"
    [ ! -d other/step-00000005 ] || fail "it trained"
}
same 'other graphs' --set clip=2
same 'the seed is 0 on rank 0' --seed 3
same 'the number of steps is 5 on rank 0' --steps 6
same 'the hash of the first batches is' --data text.other

# Ctrl-C, on a terminal: the bar is rank 0's, the step is finished and saved.
own="$SCRATCH/sgl"
cp "$SGL" "$own"
export SGL_MODULES="$(dirname "$SGL")"
nobody_left() {
    for _ in $(seq 1 60); do
        pgrep -f "^$own" >/dev/null || return 0
        sleep 0.05
    done
    fail "a process is left behind: $(pgrep -af "^$own")"
}
lines_in() { [ -f "$1" ] && wc -l <"$1" || echo 0; }
begun() { [ "$(lines_in "$1.log")" -ge 5 ]; }
LONG="$TINY --data text --steps 1000000 --eval-every 0 --set plan.precision=fp64"
MORE="--nproc 2 --mesh dp=2 --out stopped --log stopped.log"
{
    until_true begun stopped
    printf '\003'
    until_true has_ended
} | on_terminal "\"$own\" train \"$LLAMA\" $LONG $MORE"
grep -q 'status 130' terminal || fail "it did not end with 130: $(tail -n 5 terminal)"
grep -q "$(printf '\033')\[K5/1000000" terminal || fail "rank 0 does not write its line anew"
grep -q 'interrupted after step .*saved in stopped' terminal || fail "nothing was saved: $(tail -n 5 terminal)"
nobody_left
step=$(lines_in stopped.log)
[ -d "stopped/$(printf 'step-%08d' "$step")" ] || fail "step $step is not saved"

# SIGTERM goes on to the ranks, too.
# shellcheck disable=SC2086
"$own" train "$LLAMA" $LONG --nproc 2 --mesh dp=2 --out ended --log ended.log >out 2>err &
process=$!
until_true begun ended
kill -TERM $process
status=0
wait $process || status=$?
[ "$status" -eq 143 ] || fail "status $status, not 143"
says out 'interrupted after step' 'saved in ended'
nobody_left

# A command that is killed leaves no rank behind.
# shellcheck disable=SC2086
"$own" train "$LLAMA" $LONG --nproc 2 --mesh dp=2 --out killed --log killed.log >out 2>err &
process=$!
until_true begun killed
kill -KILL $process
wait $process || true
nobody_left

# A rank that is killed: one line, and nothing of the step at hand is kept.
# shellcheck disable=SC2086
"$own" train "$LLAMA" $LONG --nproc 2 --mesh dp=2 --out lost --log lost.log >out 2>err &
process=$!
until_true begun lost
kill -KILL "$(pgrep -f "^$own train" | tail -n 1)"
status=0
wait $process || status=$?
[ "$status" -ne 0 ] || fail "it ended well"
[ "$(grep -c '^sgl' err)" -eq 1 ] || fail "it is not told once"
says err 'has ended'
[ -z "$(ls lost)" ] || fail "it was saved: $(ls lost)"
nobody_left

# Where none is left that could tell, the launcher does: all ranks are killed, or one while they join.
# shellcheck disable=SC2086
"$own" train "$LLAMA" $LONG --nproc 2 --mesh dp=2 --out silent --log silent.log >out 2>err &
process=$!
until_true begun silent
# shellcheck disable=SC2046
kill -KILL $(pgrep -f "^$own train" | grep -vx "$process")
status=0
wait $process || status=$?
[ "$status" -eq 137 ] || fail "status $status, not 137"
[ "$(grep -c '^sgl' err)" -eq 1 ] || fail "it is not told once"
says err 'signal 9'
nobody_left
rank_of() { pgrep -f "^$own train" | grep -vx "$1" | tail -n 1 | grep .; }
for delay in 0 0.1 0.3; do
    # shellcheck disable=SC2086
    "$own" train "$LLAMA" $LONG --nproc 2 --mesh dp=2 --out joining >out 2>err &
    process=$!
    until_true rank_of $process >pids
    sleep $delay
    kill -KILL "$(rank_of $process)"
    status=0
    wait $process || status=$?
    [ "$status" -eq 137 ] || fail "status $status, not 137"
    [ "$(grep -c '^sgl' err)" -eq 1 ] || fail "$delay s after it began: it is not told once"
    nobody_left
    rm -rf joining
done

# What Ctrl-C has left goes on as if it had never been stopped.
run 0 train "$LLAMA" --resume stopped --log stopped.one.log --quiet --stop-at $((step + 3))
# shellcheck disable=SC2086
run 0 train "$LLAMA" $LONG --out straight --log straight.log --quiet --stop-at $((step + 3))
tail -n 3 straight.log >a.log
numbers a.log >a
numbers stopped.one.log >b
paste a b | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || !(d <= 1e-9 * $2)) exit 1 }' || fail "it goes on otherwise"
