#!/bin/sh
# Every optimizer against torch.optim in float64, 20 steps: losses, gradient norms, parameters, held-out losses (those of
# adamw by the averages that it keeps), with rates and decay by pattern, clipping and frozen parameters.
. "$ROOT/tests/e2e/common.sh"
for kind in adamw frozen sgd lion adafactor muon muon_original; do
    run 0 train "$ROOT/tests/golden/optimizers.lua" --set kind=$kind --log log --out $kind --quiet
    lua5.4 "$ROOT/tests/golden/optimizers_compare.lua" "$ROOT/tests/golden/optimizers.json" $kind log
    rm log
done
