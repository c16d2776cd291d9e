#!/bin/sh
# scripts/deploy: the batch script and the manifest are well formed, give sgl options that it has, and as many ranks as their mesh
# spans; and both run, the first with a stand-in for srun, the second with its own arguments to mpirun.
# ctest: serial
. "$ROOT/tests/e2e/common.sh"
BATCH="$ROOT/scripts/deploy/slurm.sbatch"
MANIFEST="$ROOT/scripts/deploy/mpijob.yaml"
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold

sh -n "$BATCH" || fail "the batch script cannot be read"

# The arguments of the launcher, one a line.
awk '/^ *args:/ { on = 1; next } on && !/^ *- / { exit } on { sub(/^ *- /, ""); gsub(/"/, ""); print }' "$MANIFEST" >args
grep -qx sgl args || fail "the manifest starts no sgl"
! grep -q "$(printf '\t')" "$MANIFEST" || fail "a tab in the manifest"
awk '/^ *#/ || /^$/ { next } { match($0, /^ */); if (RLENGTH % 2 || RLENGTH > depth + 4) exit 1; depth = RLENGTH }' "$MANIFEST" ||
    fail "the manifest is indented oddly"
for key in 'apiVersion: kubeflow.org/v2beta1' 'kind: MPIJob' 'Launcher:' 'Worker:' 'claimName:'; do says "$MANIFEST" "$key"; done
value() { awk -v key="$1" '$0 == key { getline; print; exit }' args; }
slots=$(sed -n 's/^ *slotsPerWorker: //p' "$MANIFEST")
workers=$(sed -n '/^ *Worker:/,$s/^ *replicas: //p' "$MANIFEST")
[ "$(value -n)" -eq $((slots * workers)) ] && [ "$(value --mesh)" = "dp=$((slots * workers))" ] || fail "slots, ranks and mesh differ"

run 0 train --help
{
    sed -n '/^sgl$/,$p' args | grep '^--'
    sed -n '/^exec srun/,$p' "$BATCH" | sed 's/.*sgl train//' | grep -o -- ' --[a-z-]*' | grep -v -e '--mpi' -e '--kill' -e '--cpu'
    echo --resume
} | sed 's/^ *//' | sort -u >used
[ "$(wc -l <used)" -ge 7 ] || fail "too few options were found: $(cat used)"
while read -r option; do says out "  $option "; done <used

if ! command -v mpirun >/dev/null || ! "$SGL" doctor | grep -q 'libsgl_mpi.so$'; then
    echo "no mpirun, or no module libsgl_mpi.so: nothing is run" >&2
    exit 77
fi

# srun as far as it is needed: as many ranks as tasks. Whoever submits the job twice goes on with it.
make_text 8000 text
mkdir bin
ln -s "$SGL" bin/sgl
as_root=
[ "$(id -u)" -ne 0 ] || as_root=--allow-run-as-root
cat >bin/srun <<END
#!/bin/sh
while [ "\$1" != sgl ]; do shift; done
exec mpirun -q $as_root --oversubscribe --bind-to none -n "\$SLURM_NTASKS" "\$@"
END
chmod +x bin/srun
export PATH="$SCRATCH/bin:$PATH" SLURM_JOB_NAME=sgl SLURM_NTASKS=2 SLURM_CPUS_PER_TASK=1
# shellcheck disable=SC2086
timeout -k 5 120 sh "$BATCH" "$LLAMA" $TINY --data text --steps 6 --stop-at 3 >out 2>err </dev/null || fail "the batch script failed"
says out 'saved sgl.run/step-00000003'
# shellcheck disable=SC2086
MESH=fsdp=2 timeout -k 5 120 sh "$BATCH" "$LLAMA" $TINY --data text --steps 6 >out 2>err </dev/null || fail "it does not go on"
[ -f sgl.run/step-00000006/states.rank-00001.safetensors ] || fail "the mesh is another one than was asked for"
says out 'resumed sgl.run/step-00000003' 'saved sgl.run/step-00000006'
[ "$(grep -c '^resumed' out)" -eq 1 ] && [ "$(grep -c step_ms sgl.run.log)" -eq 6 ] || fail "more than one rank tells it"

# The launcher of the manifest, with the volume here and two ranks.
mkdir volume
cp "$LLAMA" volume/llama.lua
cp text volume/book.txt
sed -e "s|^/mnt/sgl|$SCRATCH/volume|" -e 's/^8$/2/' -e 's/^dp=8$/dp=2/' args >here
set --
while read -r word; do set -- "$@" "$word"; done <here
# shellcheck disable=SC2086
timeout -k 5 120 mpirun --oversubscribe "$@" $TINY --steps 3 >out 2>err </dev/null || fail "the launcher's arguments failed"
says out 'volume/llama.run/step-00000003'
