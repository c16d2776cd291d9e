#!/bin/sh
# Where checkpoints come and go: --save-every, --keep, --out, --init-from, a folder that holds a run already.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text

# train NAME OPTION...
train() {
    name=$1
    shift
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" $TINY --data text --out "$name" --log "$name.log" --quiet "$@"
}

steps_in() { (cd "$1" && echo step-*); }

train a --steps 20 --save-every 4
[ "$(steps_in a)" = 'step-00000012 step-00000016 step-00000020' ] || fail "the last three are kept: $(steps_in a)"
train b --steps 20 --save-every 4 --keep 1
[ "$(steps_in b)" = 'step-00000020' ] || fail "--keep 1: $(steps_in b)"
train c --steps 10 --save-every 4 --keep 0
[ "$(steps_in c)" = 'step-00000004 step-00000008 step-00000010' ] || fail "--keep 0 keeps all, and the end: $(steps_in c)"
train deep/er/d --steps 1
[ -d deep/er/d/step-00000001 ] || fail "the folder is made with those above it"
find a b c deep -name '*.partial' | grep . && fail "something half-written is left"

# A run is not written over unasked.
tree a >before
# shellcheck disable=SC2086
refused 1 'a holds a run already' --resume --out -- train "$LLAMA" $TINY --data text --steps 5 --out a
tree a >after
same before after
refused 1 'nothing' 'No such file' -- train "$LLAMA" --resume nothing

refused 2 '--init-from' '--resume' -- train "$LLAMA" --resume a --init-from b
# Nor by a run that goes on elsewhere; --out may name the run's own folder in another way.
tree b >b.before
refused 1 'b holds a run already' -- train "$LLAMA" --resume a --steps 21 --out b
tree b >b.after
same b.before b.after
cp -r a own
run 0 train "$LLAMA" --resume own/step-00000020 --steps 21 --out ./deep/../own --quiet
[ -d own/step-00000021 ] || fail "it did not go on in its own folder"

# --resume of one checkpoint goes on from it, in the folder that it lies in.
run 0 train "$LLAMA" --resume c/step-00000004 --quiet --keep 0
same a.log a.log
train whole --steps 10
same whole/step-00000010/states.safetensors c/step-00000010/states.safetensors

# --init-from takes the parameters alone: step 1 again, moments zero, and the loss where it was. A file in it names it too.
train warm --steps 10 --init-from a
train warm2 --steps 10 --init-from a/step-00000020/parameters.safetensors
steps_of warm.log >warm.steps
steps_of warm2.log >warm2.steps
same warm.steps warm2.steps
holds "$(log step warm.log 1) == 1"
holds "$(log loss warm.log 1) < 0.95 * $(log loss a.log 1)"
train warm3 --steps 10 --init-from a/step-00000012
differ warm.steps warm3.log
tree a >after
same before after
# shellcheck disable=SC2086
refused 1 'blocks.1.attn.wq' 'parameters.safetensors' -- train "$LLAMA" $TINY --set layers=1 --data text --init-from a --out x
# shellcheck disable=SC2086
refused 1 'embed.weight' '[256,16]' '[256,24]' -- train "$LLAMA" $TINY --set dim=24 --data text --init-from a --out x
refused 1 'missing-folder' -- train "$LLAMA" --data text --init-from missing-folder --out x
