#!/bin/sh
# One curve under every plan: a tiny llama is trained by one rank, and under sixteen plans of two to four ranks; losses and gradient
# norms of each step are the same to 1e-9 in doubles, and in floats within four times what one rank's are off. scripts/curves, whose
# small part this is, has more models, plans and steps.
# ctest: serial
# ctest: timeout 900
. "$ROOT/tests/e2e/common.sh"
if ! command -v mpirun >/dev/null || ! "$SGL" doctor | grep -q 'libsgl_mpi.so$'; then
    echo "no mpirun, or no module libsgl_mpi.so: nothing of several ranks is tested" >&2
    exit 77
fi
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold
"$ROOT/scripts/curves" small "$SGL" >curves 2>&1 || { cat curves; fail "a curve is another one"; }
[ "$(grep -c '^llama.* ranks ' curves)" -eq 16 ] || fail "there are not sixteen plans"
