#!/bin/sh
# Each way in which a checkpoint can be bad: the run does not begin, the message names the file and the entry, and nothing
# on disk has changed, whether it was to go on with the run or not. Only a folder without a manifest, which is half-written,
# is passed over for the checkpoint before it, and said.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 6 --save-every 3 --out good --quiet
last=bad/step-00000006

damage() { lua5.4 "$ROOT/tests/e2e/damage.lua" "$@"; }

# fresh: a copy of the good run in bad/.
fresh() {
    rm -rf bad
    cp -r good bad
}

# refuses TEXT... -- OPTION...: going on with bad/ fails with these texts and changes nothing.
refuses() {
    tree bad >before
    texts=
    while [ "$1" != -- ]; do
        texts="$texts$1
"
        shift
    done
    shift
    run 1 train "$LLAMA" --resume bad --steps 9 "$@"
    printf '%s' "$texts" | while IFS= read -r text; do says err "$text"; done
    says_not out resumed
    tree bad >after
    same before after
}

# Flipped bits: in the data of a parameter, of a state, in a header, in the manifest.
fresh
damage entry $last/parameters.safetensors norm.weight
refuses 'parameters.safetensors: norm.weight' 'not those that were saved' --
run 1 generate bad --prompt The
says err 'parameters.safetensors: norm.weight'
fresh
damage entry $last/states.safetensors adamw.v/norm.weight
refuses 'states.safetensors: adamw.v/norm.weight' --
run 0 generate bad --prompt The --tokens 3 # which needs no states
fresh
damage flip $last/parameters.safetensors 20
refuses 'parameters.safetensors' -- --resume $last
fresh
damage rename $last/manifest.json '"xxh3_128": "' '"xxh3_127": "'
refuses 'manifest.json' 'xxh3_128' --
fresh
damage rename $last/manifest.json '"step": 6' '"step": 7'
refuses 'manifest.json' 'not those that were saved' --

# Cut off: within the data, within the header, to nothing.
fresh
bytes=$(wc -c <$last/parameters.safetensors)
cut=$(damage last $last/parameters.safetensors)
damage cut $last/parameters.safetensors $((bytes - 5))
refuses 'parameters.safetensors' "$cut" -- --resume $last
refuses 'parameters.safetensors' "$cut" --
# Nor does a new run begin in that folder, or another run go on into it.
tree bad >before
# shellcheck disable=SC2086
refused 1 'bad/step-00000006/parameters.safetensors' "$cut" -- train "$LLAMA" $TINY --data text --steps 9 --out bad
refused 1 'bad/step-00000006/parameters.safetensors' "$cut" -- train "$LLAMA" --resume good --steps 9 --out bad
refused 1 'bad/step-00000006/parameters.safetensors' "$cut" -- train "$LLAMA" --init-from bad --data text --out other1
tree bad >after
same before after
[ ! -e other1 ] || fail "a folder was made"
fresh
damage cut $last/states.safetensors 40
refuses 'states.safetensors' -- --resume $last
fresh
damage cut $last/states.safetensors 0
refuses 'states.safetensors' -- --resume $last

# Whole files away; all of them away.
fresh
rm $last/states.safetensors
refuses 'states.safetensors' -- --resume $last
fresh
rm $last/manifest.json
run 0 train "$LLAMA" --resume bad --steps 4 --out other2 --quiet
[ -d other2/step-00000004 ] || fail "it did not go on from step 3"
rm bad/*/manifest.json
refuses 'manifest.json' --
rm -r bad/*
refuses 'bad' 'no checkpoint' --

# Entries: one under another name (missing and extra at once), one of another shape than its bytes, overlapping ones.
fresh
damage rename $last/parameters.safetensors '"blocks.1.attn.wq"' '"blocks.1.attn.wx"'
refuses 'parameters.safetensors' 'blocks.1.attn.wq was saved and is missing' 'blocks.1.attn.wx' --
fresh
damage header $last/parameters.safetensors '"shape":[256,16]' '"shape":[256,17]'
refuses 'parameters.safetensors' 'embed.weight' --
fresh
damage header $last/parameters.safetensors '"dtype":"F32"' '"dtype":"F16"'
refuses 'parameters.safetensors' -- --resume $last

# A program that is another: a layer more, a layer less, other shapes, an optimizer with other states.
fresh
refuses 'parameters.safetensors' 'blocks.2.attn.wq is missing' -- --set layers=3
refuses 'parameters.safetensors' 'blocks.1.attn.wq' 'no such parameter' -- --set layers=1
refuses 'embed.weight' 'f32[256,16]' 'f32[256,32]' -- --set dim=32
sed 's/optim.adamw {/optim.sgd { momentum = 0.9,/' "$LLAMA" >sgd.lua
tree bad >before
run 1 train sgd.lua --resume bad --steps 9
says err 'states.safetensors' 'adamw.m/'
tree bad >after
same before after
