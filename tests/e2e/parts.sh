#!/bin/sh
# States of which each rank has a part: the curve is that of one rank; a checkpoint of any plan goes on under any other, and is
# read whole by one process; weights are taken in parts; a rank that is killed while all save costs the new checkpoint alone.
# ctest: serial
# ctest: timeout 600
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold

if ! command -v mpirun >/dev/null || ! "$SGL" doctor | grep -q 'libsgl_mpi.so$'; then
    echo "no mpirun, or no module libsgl_mpi.so: nothing of several ranks is tested" >&2
    exit 77
fi

# train RUN RANKS MESH ARGUMENT...: in doubles; of one rank the mesh is ''. Layers say what is split over tp, and a plan over
# fsdp: zero=3 (if nothing is said) parameters and states, zero=1 states alone.
train() {
    name=$1 number=$2 mesh=$3
    shift 3
    [ "$number" -eq 1 ] || set -- "$@" --nproc "$number" --mesh "$mesh" --timeout 60
    run 0 train "$LLAMA" "$@" --out "$name" --log "$name.log" --quiet
}
# near A B: the same steps, and losses within 1e-12 of each other, relative.
numbers() { sed -E 's/.*"step":([0-9]+).*"(eval_)?loss":([^,}]*).*/\1 \3/' "$1"; }
near() {
    numbers "$1" >a
    numbers "$2" >b
    [ "$(wc -l <a)" -eq "$(wc -l <b)" ] || fail "$1 and $2 have not as many lines"
    paste a b | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || !(d <= 1e-12 * $2)) exit 1 }' ||
        fail "$1 and $2 differ: $(diff a b | head -n 4)"
}
# behind N FILE: the lines of steps behind step N.
behind() { awk -v n="$1" -F'[:,]' '$2 > n' "$2"; }

# shellcheck disable=SC2086
train one 1 '' $TINY --set plan.precision=fp64 --data text --steps 20
# shellcheck disable=SC2086
train five 2 dp=2 $TINY --set plan.precision=fp64 --data text --steps 20 --stop-at 5
[ ! -e five/step-00000005/parameters.rank-00001.safetensors ] || fail "what is whole everywhere is written twice"

# From wholes to each way of parts; uneven ones, and ranks that have none of a parameter, too.
go_on() {
    run=$1
    shift
    cp -r five "$run"
    train "$run" "$@" --resume "$run"
    behind 5 one.log >expected.log
    near "$run.log" expected.log
}
go_on whole 1 ''
go_on heads 2 tp=2
go_on zero 2 fsdp=2
go_on states 2 fsdp=2 --set plan.zero=1
go_on uneven 3 fsdp=3
go_on crossed 4 dp=2,tp=2
PIPE="--set plan.schedule=1f1b --set plan.micro=2"
# shellcheck disable=SC2086
go_on stages 2 pp=2 $PIPE
# shellcheck disable=SC2086
go_on zero_stages 4 pp=2,fsdp=2 --set plan.schedule=gpipe --set plan.micro=2
[ -e stages/step-00000020/parameters.rank-00001.safetensors ] || fail "the second stage wrote nothing"
[ -e heads/step-00000020/parameters.rank-00001.safetensors ] || fail "the second rank wrote nothing"
[ ! -e crossed/step-00000020/parameters.rank-00002.safetensors ] || fail "a replica wrote parameters"

# From one plan to the next, and the next: no sample is left out or seen twice.
cp -r five chain
for turn in '8 2 tp=2' '11 3 fsdp=3' "13 4 pp=2,tp=2 $PIPE" '14 4 dp=2,fsdp=2' '16 1' '20 4 fsdp=2,tp=2'; do
    # shellcheck disable=SC2086
    set -- $turn
    step=$1 ranks=$2 mesh=${3:-}
    shift $(($# < 3 ? $# : 3))
    [ $# -gt 0 ] || set -- --set plan.schedule=none --set plan.micro=1
    train chain "$ranks" "$mesh" "$@" --resume chain --stop-at "$step"
done
behind 5 one.log >expected.log
near chain.log expected.log # a run that goes on adds to its log

# One process reads it whole.
run 0 eval heads
sed 1d out >heads.eval
run 0 eval whole
sed 1d out >whole.eval
same heads.eval whole.eval
run 0 eval stages
sed 1d out >stages.eval
same stages.eval whole.eval
run 0 generate heads --prompt the --tokens 4
cp out alone.text
for mesh in 2:tp=2 2:dp=2 3:fsdp=3 2:pp=2 4:dp=2,cp=2; do
    run 0 generate heads --prompt the --tokens 4 --nproc "${mesh%%:*}" --mesh "${mesh#*:}"
    same out alone.text
done
run 1 generate heads --prompt-ids 999 --nproc 2 --mesh tp=2
says err 'token 0 of the prompt is 999, outside the vocabulary of 256'
[ "$(wc -l <err)" -eq 1 ] || fail "it is told more than once"
run 0 export heads --out heads.safetensors
run 0 export whole --out whole.safetensors
[ "$(wc -c <heads.safetensors)" -eq "$(wc -c <whole.safetensors)" ] || fail "what is exported differs in size"

# Weights of a file, and of a checkpoint, each rank its parts.
# shellcheck disable=SC2086
train begun 1 '' $TINY --set plan.precision=fp64 --data text --steps 4 --init-from whole.safetensors
# shellcheck disable=SC2086
train begun2 2 tp=2 $TINY --set plan.precision=fp64 --data text --steps 4 --init-from whole.safetensors
near begun.log begun2.log
# shellcheck disable=SC2086
train begun3 2 fsdp=2 $TINY --set plan.precision=fp64 --data text --steps 4 --init-from whole/step-00000020
near begun.log begun3.log

# ---- what is damaged ------------------------------------------------------------------------------------------------------

for file in parameters.rank-00001 states.rank-00001; do
    cp -r heads damaged
    rm damaged/step-00000020/$file.safetensors
    refused 1 "$file.safetensors" 'the file is missing' -- eval damaged
    rm -r damaged
done
cp -r heads damaged
printf 'X' | dd of=damaged/step-00000020/parameters.rank-00001.safetensors bs=1 seek=2000 conv=notrunc 2>dd.out
refused 1 'parameters.rank-00001.safetensors' 'its bytes are not those that were saved' -- eval damaged
run 1 train "$LLAMA" --resume damaged --nproc 2 --mesh tp=2 --steps 25
says err 'parameters.rank-00001.safetensors' 'its bytes are not those that were saved'
[ "$(grep -c '^sgl:.*saved' err)" -eq 1 ] || fail "it is not told once"

# ---- a rank that is killed while all save ---------------------------------------------------------------------------------

own="$SCRATCH/sgl"
cp "$SGL" "$own"
export SGL_MODULES="$(dirname "$SGL")"
BIG="--set dim=64 --set layers=4 --set heads=4 --set kv_heads=4 --set ffn=256 --set seq=8 --set batch=2"
saved() { ls -d killed/step-* 2>/dev/null | wc -l; }
nobody_left() { ! pgrep -f "^$own" >/dev/null; }
enough() { [ "$(saved)" -ge "$1" ]; }
# shellcheck disable=SC2086
run 0 train "$LLAMA" $BIG --data text --steps 1000000 --stop-at 1 --out killed --quiet
for turn in 1 2 3 4; do
    # shellcheck disable=SC2086
    "$own" train "$LLAMA" --resume killed --nproc 2 --mesh tp=2 --save-every 1 --keep 0 \
        --eval-every 0 --quiet >out 2>err &
    process=$!
    before=$(saved)
    until_true enough $((before + 2))
    sleep "0.0$turn"
    kill -KILL "$(pgrep -f "^$own train" | sed -n "$((turn % 2 + 1))p")"
    status=0
    wait $process || status=$?
    [ "$status" -ne 0 ] || fail "it ended well"
    until_true nobody_left # the launcher may be gone before the other rank is
    last=$(basename "$(ls -d killed/step-* | tail -n 1)")
    run 0 eval killed
    says out "$last"
done
