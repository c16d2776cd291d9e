#!/bin/sh
# Where nothing can be written: a full disk under --log, --svg, stdout and the checkpoint, folders that cannot be made. The
# message names the file, the status is 1, and what was there before is whole.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text

# shellcheck disable=SC2086
run 1 train "$LLAMA" $TINY --data text --steps 5 --out a --log /dev/full
says err '/dev/full' 'No space left'
# shellcheck disable=SC2086
run 1 train "$LLAMA" $TINY --data text --steps 5 --out a2 --log nowhere/log
says err 'nowhere/log' 'No such file'
run 1 memory "$LLAMA" --svg /dev/full
says err '/dev/full' 'No space left'
for command in "graph $LLAMA" "memory $LLAMA" doctor version help "train --help"; do
    status=0
    # shellcheck disable=SC2086
    "$SGL" $command >/dev/full 2>err || status=$?
    [ "$status" -eq 1 ] || fail "sgl $command on a full disk ends with status $status"
    says err 'standard output' 'No space left'
done

# A folder that cannot be made or written: before the first step.
echo file >stands-there
# shellcheck disable=SC2086
run 1 train "$LLAMA" $TINY --data text --steps 5 --out stands-there --log log
says err 'stands-there'
[ ! -s log ] || fail "it trained before it looked"
# shellcheck disable=SC2086
run 1 train "$LLAMA" $TINY --data text --steps 5 --out stands-there/below --log log
says err 'stands-there'
# shellcheck disable=SC2086
run 1 train "$LLAMA" $TINY --data text --steps 5 --out /proc/no-folder --log log
says err '/proc/no-folder'
if [ "$(id -u)" -ne 0 ]; then # root may write everywhere
    mkdir read-only
    chmod 555 read-only
    # shellcheck disable=SC2086
    run 1 train "$LLAMA" $TINY --data text --steps 5 --out read-only/run --log log
    says err 'read-only/run' 'Permission denied'
    chmod 755 read-only
fi

# The disk fills up while a checkpoint is written: files may grow to 16 KiB, a parameter file takes 30.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 20 --stop-at 5 --out full --quiet
tree full >before
status=0
(
    trap '' XFSZ
    ulimit -f 32
    exec "$SGL" train "$LLAMA" --resume full --quiet >out 2>err
) || status=$?
[ "$status" -eq 1 ] || fail "the checkpoint did not fit, and the status is $status"
says err 'full/' 'parameters.safetensors' 'File too large'
tree full >after
same before after
run 0 train "$LLAMA" --resume full --quiet
[ -d full/step-00000020 ] || fail "it does not go on when there is room again"
