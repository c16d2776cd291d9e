#!/bin/sh
# Ranks on the device cuda exchange by NCCL: with a driver and an NCCL without a GPU behind them (tests/cuda) every plan runs to its
# end, a rank that does not come ends the others within the timeout, and what stands against NCCL is said.
# ctest: serial
# ctest: timeout 900
. "$ROOT/tests/e2e/common.sh"

command -v mpirun >/dev/null && [ -e "${SGL%/*}/libsgl_mpi.so" ] || {
    echo "no MPI: nothing is tested" >&2
    exit 77
}
[ -e "$DRIVER/libnccl.so.2" ] && [ -e "${SGL%/*}/libsgl_cuda.so" ] || {
    echo "no CUDA toolkit with NCCL: nothing is tested" >&2
    exit 77
}
export LD_LIBRARY_PATH="$DRIVER${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold
export SGL_CACHE="$PWD/cache" SGL_LOG=debug
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

run 0 doctor
grep -q '  NVRTC [0-9]' out || {
    echo "no NVRTC: no program is made" >&2
    exit 77
}
says out 'ranks exchange by NCCL 2.28.9'
SGL_TESTS_NCCL=old run 0 doctor
says out 'ranks exchange through the host: device cuda: libnccl.so.2 is of version 21703; 21800 is the least'

# job CODE RANKS MESH OPTION...
job() {
    wanted=$1 ranks=$2 mesh=$3
    shift 3
    rm -rf run
    # shellcheck disable=SC2086
    run "$wanted" train "$GPT2" --device cuda --data "$ROOT/docs/language.md" $TINY_GPT2 --steps 3 --quiet --out run \
        --nproc "$ranks" --mesh "$mesh" "$@"
}
by_nccl='exchange from GPU to GPU'

# The marks of what is under way run in that driver, exchanges do not: the numbers are no one's.
export SGL_TESTS_DRIVER=apart
job 0 2 dp=2
says err "1 groups $by_nccl"
job 0 2 fsdp=2
says err "$by_nccl"
job 0 2 tp=2
says err "$by_nccl"
job 0 2 pp=2 --set plan.micro=2 --set plan.schedule=1f1b
says err "$by_nccl"
SGL_CUDA_GRAPH=0 job 0 2 dp=2
says err "$by_nccl"

# What stands against it is said once; demanded, it is an error.
SGL_CUDA_NCCL=0 job 0 2 dp=2
says err 'ranks exchange through the host: rank 0 on' 'SGL_CUDA_NCCL is 0'
says_not err "$by_nccl"
SGL_TESTS_NCCL=old job 0 2 dp=2
says err 'ranks exchange through the host: rank 0 on' 'libnccl.so.2 is of version 21703'
SGL_CUDA_NCCL=1 SGL_TESTS_NCCL=old job 1 2 dp=2
says err 'ranks are to exchange from GPU to GPU, and cannot: rank 0 on' 'libnccl.so.2 is of version 21703'
export SGL_TESTS_DRIVER=
job 0 2 dp=2
says err 'ranks exchange through the host: rank 1 on' 'and rank 0 have one GPU'
says_not err "$by_nccl"

# An exchange that does not end, and a group that nobody joins: told within the timeout, by one rank.
export SGL_TESTS_DRIVER=apart
SGL_TESTS_NCCL=stuck job 1 2 dp=2 --timeout 2
says err 'waits at exchange' 'of group dp, for 2.' '(timeout 2 s)' 'gpt2.lua:'
SGL_TESTS_NCCL=never job 1 2 dp=2 --timeout 2
says err 'waits at exchange' '(making a group of devices), broadcast of group dp, for 2.' '(timeout 2 s)'
[ "$(grep -c '^sgl: .*timeout 2 s' err)" -eq 1 ] || fail "it is not told once"

# A rank that ends while the others' GPUs wait for it.
rm -rf run
# shellcheck disable=SC2086
SGL_TESTS_NCCL=stuck "$SGL" train "$GPT2" --device cuda --data "$ROOT/docs/language.md" $TINY_GPT2 --steps 3 --quiet \
    --out run --nproc 2 --mesh dp=2 --timeout 100 >out 2>err </dev/null &
job=$!
for _ in $(seq 1 600); do
    ! grep -qF "$by_nccl" err || break
    sleep 0.1
done
sleep 1
since=$(date +%s)
victim=$(pgrep -f "^$SGL train.*--mesh dp=2" | while read -r process; do
    tr '\0' '\n' <"/proc/$process/environ" | grep -qx 'OMPI_COMM_WORLD_RANK=1' && echo "$process"
done)
kill -KILL "$victim"
status=0
wait $job || status=$?
[ "$status" -ne 0 ] || fail "a job ended well of which a rank was killed"
[ $(($(date +%s) - since)) -le 20 ] || fail "the others needed $(($(date +%s) - since)) s"
says err 'rank 1 on' 'has ended'
