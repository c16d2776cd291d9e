#!/bin/sh
# `sgl memory`: bytes by section, the transient peak and its lower bound; at most 1.02 apart on both examples at their
# default sizes, which are planned here and not run; the drawing is well-formed and has a rectangle per lifetime.
. "$ROOT/tests/e2e/common.sh"

# planned NAME SCRIPT PARAMETERS OPTION...
planned() {
    name=$1 script=$2 parameters=$3
    shift 3
    run 0 memory "$script" --svg "$name.svg" "$@"
    mv out "$name.txt"
    says "$name.txt" 'memory of program "train"' parameter state 'tensors' 'transient peak' 'lower bound' 'total' "$(basename "$script"):"
    ratio=$(sed -n 's/.*peak \/ bound //p' "$name.txt")
    echo "$name: peak / bound $ratio, $(grep 'transient peak' "$name.txt" | tr -s ' ') bytes"
    holds "$ratio >= 1.0 && $ratio <= 1.02"
    rectangles=$(lua5.4 "$ROOT/tests/e2e/xml.lua" "$name.svg" rect) || fail "$name.svg is not well-formed"
    run 0 memory "$script" --format json "$@"
    lifetimes=$(grep -o '"from":' out | wc -l)
    [ "$rectangles" -eq "$lifetimes" ] || fail "$rectangles rectangles, $lifetimes lifetimes"
    arena=$(sed -n 's/.*"arena_bytes":\([0-9]*\).*/\1/p' out)
    [ "$(grep 'transient peak' "$name.txt" | tr -dc 0-9)" = "$arena" ] || fail "text and JSON tell other peaks"
    # Parameters and the two moments, 4 bytes each, with at most a page of padding a section.
    states=$(sed -n 's/.*"state_bytes":\([0-9]*\).*/\1/p' out)
    holds "$states >= 12 * $parameters && $states <= 12 * $parameters + 3 * 4096"
}

planned llama "$LLAMA" 820352
planned gpt2 "$GPT2" 123702528
# shellcheck disable=SC2086
planned tiny "$LLAMA" 8784 $TINY
run 0 memory "$LLAMA" --graph decode
says out 'memory of program "decode"' 'cache.k/blocks.0.attn' cache
# Micro-batches need less.
run 0 memory "$LLAMA" --set micro=4 --format json
quarter=$(sed -n 's/.*"arena_bytes":\([0-9]*\).*/\1/p' out)
run 0 memory "$LLAMA" --format json
holds "$quarter < 0.6 * $(sed -n 's/.*"arena_bytes":\([0-9]*\).*/\1/p' out)"
refused 1 '--svg nowhere/x.svg' 'No such file' -- memory "$LLAMA" --graph decode --svg nowhere/x.svg
refused 1 "'jsno'" 'text, json' -- memory "$LLAMA" --format jsno
