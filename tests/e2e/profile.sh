#!/bin/sh
# `sgl profile`: a table of kernels against the machine's roof and a timeline, of a run that keeps nothing; of several ranks what
# exchanges expose, and a timeline each.
. "$ROOT/tests/e2e/common.sh"

make_text 20000 text
# shellcheck disable=SC2086
run 0 profile "$LLAMA" $TINY --data text --steps 4 --timeline line.json
says out 'profile of program "train": 4 steps, ' 'roof: ' 'TFLOP/s in f32' 'copies ' 'share   roof' 'attention' 'fused kernel ' \
    'llama.lua:'
says_not out 'saved' 'exposed communication'
[ ! -e llama.run ] || fail "a profile left a folder of checkpoints"
lua5.4 "$ROOT/tests/e2e/timeline.lua" line.json 1

# Rates that are given stand in place of measured ones: the roof is theirs, and the same each time.
# shellcheck disable=SC2086
run 0 profile "$LLAMA" $TINY --data text --steps 1 --machine tflops=0.5,narrow_tflops=1,gbytes_s=20 --format json
says out '"flops_per_s":500000000000,"narrow_flops_per_s":1000000000000,"bytes_per_s":20000000000' '"roof_ms":' '"steps":1,'

refused 1 '--timeline no/such/folder' 'No such file' -- profile "$LLAMA" $TINY --data text --steps 1 --timeline no/such/folder
run 0 profile "$LLAMA" $TINY --data text --device null --steps 1
says out 'profile of program "train": 1 steps'
says_not out 'roof: '

"$SGL" doctor | grep -q '^transport mpi' && "$SGL" doctor | grep -A1 '^transport mpi' | grep -qv 'cannot be' || exit 0
command -v mpirun >/dev/null || exit 0
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold
# shellcheck disable=SC2086
run 0 profile "$LLAMA" $TINY --data text --steps 2 --nproc 2 --mesh dp=2 --timeline 'rank.%r.json'
says out 'exposed communication: ' ' wait f32'
says rank.0.json '"name":"all_reduce' '"name":"exposed communication"' '"name":"exchanges"'
lua5.4 "$ROOT/tests/e2e/timeline.lua" rank.0.json 3
lua5.4 "$ROOT/tests/e2e/timeline.lua" rank.1.json 3
