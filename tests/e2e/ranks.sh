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
refused 2 '--timeout -1' -- train "$LLAMA" --timeout -1 --nproc 2

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
