#!/bin/sh
# The plan of a llama of 70 billion parameters over 1,024 ranks, the order of all their exchanges proven: within 30 s of a
# core's time and 4 GiB of addresses, for parameters in parts and for a pipeline.
# Odd invariant: it asks for the release build; a sanitizer maps terabytes, and is slow.
. "$ROOT/tests/e2e/common.sh"

[ ! -x "$RELEASE" ] || SGL=$RELEASE
[ -x "$RELEASE" ] || [ -z "$SANITIZE" ] || exit 77

SHAPE='--set layers=80 --set dim=8192 --set heads=64 --set kv_heads=8 --set ffn=28672 --set vocab=128256 --set seq=4096 --set batch=1024'

# planned RANKS_THAT_SHARE_A_PARAMETER OPTION...
planned() {
    parts=$1
    shift
    # shellcheck disable=SC2086
    (ulimit -v 4194304 && ulimit -t 30 && run 0 plan "$LLAMA" $SHAPE "$@") || fail "$*: not within 30 s and 4 GiB"
    says out 'rank 0 of 1024' 'order of exchanges: all 1024 ranks come to the end of a step'
    bytes=$(sed -n 's/^  parameters  *//p' out | tr -d ,)
    holds "$bytes * $parts >= 4 * 69e9 && $bytes * $parts <= 4 * 75e9"
}
planned 1024 --mesh fsdp=128,tp=8
planned 1024 --mesh pp=4,fsdp=32,tp=8 --set plan.micro=8 --set plan.schedule=1f1b
