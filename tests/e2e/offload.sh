#!/bin/sh
# Memory of the host: the same bits in every tensor of a checkpoint whatever is offloaded, in micro-batches, with another optimizer, in
# bf16, over ranks, resumed with and without; a bound that recompute alone cannot keep is kept by it; what `sgl memory`, `sgl plan`
# and `sgl graph` say of it; words that are none are refused.
# ctest: timeout 600
. "$ROOT/tests/e2e/common.sh"

yes 'the quick brown fox jumps over the lazy dog' | head -c 60000 >text

# tensors OPTION...: a short run; each tensor of its checkpoint, into the file `made`.
tensors() {
    rm -rf run
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" $TINY --data text --steps 4 --quiet --out run "$@"
    lua5.4 "$ROOT/tests/e2e/tensors.lua" run/step-*4/parameters.safetensors run/step-*4/states.safetensors >made
}
# same OPTION...: with these the tensors are those of `wanted`, and moves stand in the program.
same() {
    tensors "$@" --threads "$threads"
    threads=$((3 - threads))
    cmp -s made wanted || fail "$*: other numbers"
    # shellcheck disable=SC2086
    run 0 graph "$LLAMA" $TINY --after memory "$@"
    grep -q '= prefetch(' out || fail "$*: nothing is fetched"
    grep -q '= arrived(' out || fail "$*: nothing is waited for"
}
threads=1 all=moments,params,activations pieces='--set plan.bucket=1KB'

tensors
cp made wanted
same --set plan.offload=moments
# shellcheck disable=SC2086
same --set plan.offload=moments $pieces
# shellcheck disable=SC2086
same --set plan.offload=params $pieces
# shellcheck disable=SC2086
same --set plan.offload=$all $pieces
# shellcheck disable=SC2086
same --set plan.offload=$all $pieces

# Pieces are sections of their own, and no state is left on the device but small ones.
# shellcheck disable=SC2086
run 0 graph "$LLAMA" $TINY --set plan.offload=moments $pieces --after memory
holds "$(grep -c 'input() {role=1' out) > 8 && $(grep -c '= offload(' out) > 8"
says out 'in away+0' ', away='

# A loop over micro-batches; half precision; several rules, of which one takes matrices one by one.
tensors --set micro=2
cp made wanted
# shellcheck disable=SC2086
same --set micro=2 --set plan.offload=$all $pieces
tensors --set plan.precision=bf16
cp made wanted
# shellcheck disable=SC2086
same --set plan.precision=bf16 --set plan.offload=$all $pieces
for rule in 'muon { lr = 1e-3 }' 'adafactor { lr = 1e-3 }' 'lion { lr = 1e-4, ema = 0.9 }'; do
    sed "/optim = optim.adamw {/,/^  },/c\\  optim = optim.$rule," "$LLAMA" >other.lua
    grep -qF "$rule" other.lua || fail "the example's optimizer is not where it was"
    for offload in '' "$all"; do
        rm -rf run
        # shellcheck disable=SC2086
        run 0 train other.lua $TINY --data text --steps 4 --quiet --out run --set plan.offload="$offload" $pieces
        lua5.4 "$ROOT/tests/e2e/tensors.lua" run/step-*/parameters.safetensors run/step-*/states.safetensors >"made$offload"
    done
    cmp -s made "made$all" || fail "$rule: other numbers"
done

# What was saved with states away goes on with them at hand, and the other way round.
tensors --set plan.offload=moments
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 6 --quiet --resume run --out run --set plan.offload=
lua5.4 "$ROOT/tests/e2e/tensors.lua" run/step-*6/*.safetensors >wanted
tensors
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 6 --quiet --resume run --out run --set plan.offload=$all $pieces
lua5.4 "$ROOT/tests/e2e/tensors.lua" run/step-*6/*.safetensors >made
cmp -s made wanted || fail 'resumed: other numbers'
# shellcheck disable=SC2086
run 0 generate run --prompt a --tokens 4 --set plan.offload=params
run 0 eval run --set plan.offload=params

# A bound below the least that recompute reaches by itself.
tensors
cp made wanted
# shellcheck disable=SC2086
run 0 memory "$LLAMA" $TINY
least=$(sed -n 's/^  the least *[0-9,]* *[0-9,]* *\([0-9,]*\).*/\1/p' out | tr -d ,)
bound=$((least - 20000))
same --set plan.memory="$bound"
# shellcheck disable=SC2086
run 0 memory "$LLAMA" $TINY --memory "$bound"
total=$(sed -n 's/^total *\([0-9,]*\)$/\1/p' out | tr -d ,)
holds "$total <= $bound"
says out 'memory of the host'
# shellcheck disable=SC2086
refused 1 'plan: memory is 1000 bytes' 'at least' plan.offload plan.micro -- train "$LLAMA" $TINY --data text --memory 1kB --out none

# A list in the script is the text of the option.
sed 's/plan = sgl.plan {/plan = sgl.plan { offload = { "moments" },/' "$LLAMA" >listed.lua
grep -q 'offload = {' listed.lua || fail "the example's plan is not where it was"
# shellcheck disable=SC2086
run 0 graph listed.lua $TINY --after offload
says out '= prefetch('
# shellcheck disable=SC2086
refused 1 "plan: offload: 'moment' is none of moments, params, activations; did you mean 'moments'" -- \
    train "$LLAMA" $TINY --data text --set plan.offload=moment --out none
