#!/bin/sh
# docs/plans.md: every command in it, in its order, as a reader would give it; those of several ranks where there is an mpirun.
# ctest: serial
# ctest: timeout 600
. "$ROOT/tests/e2e/common.sh"
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold
ln -s "$ROOT/examples" examples
make_text 40000 book.txt
ranks=true
command -v mpirun >/dev/null && "$SGL" doctor | grep -q 'libsgl_mpi.so$' || ranks=false

grep '^    sgl ' "$ROOT/docs/plans.md" | sed 's/^    sgl //' >commands
[ "$(wc -l <commands)" -ge 10 ] || fail "docs/plans.md has few commands"
while IFS= read -r line; do
    case $line in
    *--nproc*) $ranks || continue ;;
    *llama.run* | *--resume*) $ranks || continue ;; # what a run of several ranks has written
    esac
    small=
    case $line in train*--data*) small='--set dim=32 --set layers=2 --set ffn=64 --set seq=32' ;; esac
    case $line in
    *--log*) ;;
    *one.run*) small="$small --log one.log" ;;
    *staged.run*) small="$small --log staged.log" ;;
    train*--data*) small="$small --log many.log" ;;
    esac
    eval "set -- $line $small"
    run 0 "$@"
    echo "$line" >>ran
done <commands
$ranks || exit 77
[ "$(wc -l <ran)" -eq "$(wc -l <commands)" ] || fail "not all were run"
[ -d llama.run/step-00000040 ] || fail "the runs did not go on"
[ -s run.0.log ] && [ -s run.1.log ] || fail "not each rank has a log"
for step in 1 10 20; do
    holds "($(log loss one.log $step) - $(log loss many.log $step))^2 < 1e-8"
    holds "($(log loss one.log $step) - $(log loss staged.log $step))^2 < 1e-8"
done
