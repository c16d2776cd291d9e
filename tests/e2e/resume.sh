#!/bin/sh
# ctest: timeout 600
# --steps 100 equals --steps 100 --stop-at 50 and then --resume, bit for bit in the log and in the checkpoint: as it is,
# with dropout, with micro-batches, with another number of threads. A log that got further than its last checkpoint, or
# ends within a line, is taken up where the checkpoint is.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text

# halves NAME OPTION...: whole and in two halves.
halves() {
    name=$1
    shift
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" $TINY --data text --steps 100 --eval-every 25 --out "$name.whole" --log "$name.whole.log" --quiet "$@"
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" $TINY --data text --steps 100 --eval-every 25 --out "$name.half" --log "$name.half.log" --quiet \
        --stop-at 50 "$@"
    [ -d "$name.half/step-00000050" ] || fail "there is no checkpoint of step 50"
    [ ! -d "$name.half/step-00000100" ] || fail "--stop-at went on"
    # What the run was told stands in its checkpoint: only where it lies is said again.
    run 0 train "$LLAMA" --out "$name.half" --resume --log "$name.half.log"
    says out "resumed $name.half/step-00000050"
    same_run "$name.whole" "$name.half"
}

same_run() {
    steps_of "$1.log" >a
    steps_of "$2.log" >b
    same a b
    [ "$(wc -l <a)" -eq 104 ] || fail "the log has not 100 steps and 4 evaluations"
    same "$1/step-00000100/parameters.safetensors" "$2/step-00000100/parameters.safetensors"
    same "$1/step-00000100/states.safetensors" "$2/step-00000100/states.safetensors"
}

halves plain
halves dropout --set dropout=0.2
halves micro --set micro=2
differ plain.whole.log dropout.whole.log
differ plain.whole.log micro.whole.log

# Any number of threads gives the same bits, and so does a run that changes it halfway.
for threads in 1 2 3; do
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" $TINY --set dropout=0.2 --data text --steps 100 --eval-every 25 --out threads.$threads \
        --log threads.$threads.log --quiet --threads $threads
    same_run dropout.whole threads.$threads
done
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --set dropout=0.2 --data text --steps 100 --eval-every 25 --out mixed --log mixed.log --quiet \
    --threads 1 --stop-at 37
run 0 train "$LLAMA" --resume mixed --log mixed.log --quiet --threads 3
same_run dropout.whole mixed

# Killed at step 80 with a checkpoint of step 60: the log's lines behind 60, the last one cut off, are written anew.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 100 --eval-every 25 --save-every 60 --out killed --log killed.log --quiet \
    --stop-at 80
rm -r killed/step-00000080
printf '{"step":81,"lo' >>killed.log
run 0 train "$LLAMA" --resume killed --log killed.log --quiet
same_run plain.whole killed
cp text other.log
refused 1 'other.log' 'no log of steps' -- train "$LLAMA" --resume killed --log other.log --quiet
same text other.log

# The half ends where it is evaluated and saved anyway. A run that is done has nothing to add to its log.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 100 --eval-every 25 --save-every 50 --out both --log both.log --quiet --stop-at 50
run 0 train "$LLAMA" --resume both --log both.log --quiet
same_run plain.whole both
cp both.log done.log
run 0 train "$LLAMA" --resume both --log done.log --quiet
same both.log done.log

# Another seed is another run; the seed of a resumed run is its own.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 100 --eval-every 25 --out seed --log seed.log --quiet --seed 5
differ plain.whole.log seed.log
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 100 --eval-every 25 --out seed2 --log seed2.log --quiet --seed 5 --stop-at 10
run 0 train "$LLAMA" --resume seed2 --log seed2.log --quiet
same_run seed seed2

# All bits of a seed count, and it decides the order of the data too.
for seed in 9223372036854775807 9223372036854775806; do
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" $TINY --data text --steps 3 --out big.$seed --log big.$seed.log --quiet --seed $seed
done
differ big.9223372036854775807.log big.9223372036854775806.log

# Nothing is left to do, and more steps than before can be asked for.
run 0 train "$LLAMA" --resume seed2 --quiet
# shellcheck disable=SC2086
run 0 train "$LLAMA" --resume seed2 --steps 103 --log longer.log --quiet
[ -d seed2/step-00000103 ] || fail "--steps did not lengthen the run"
refused 1 '103 steps are done already' -- train "$LLAMA" --resume seed2 --steps 50 --quiet

# With another script, or one that was changed since: what differs, and which script made the checkpoint.
cat >one.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { dim = 8, wide = 1 }
local embed, layer = nn.embedding(256, cfg.dim), nn.linear(cfg.dim, cfg.dim)
local model = nn.module("m", { embed = embed, layer = layer }, function(t) return nn.tied_head(embed, layer(embed(t))) end)
return sgl.job {
  model = model, loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.text { path = "text", seq = 8, batch = 2 }, optim = sgl.optim.sgd { lr = 0.1 }, steps = 4,
}
LUA
run 0 train one.lua --out made --stop-at 2 --quiet
sed 's/layer = layer/other = layer/' one.lua >two.lua
refused 1 'other.weight is missing; the program has this parameter' 'no such parameter as layer.weight' \
    'made/step-00000002 was made by the script one.lua, not by two.lua: resume it with that' -- train two.lua --resume made --quiet
cp one.lua kept.lua
cp two.lua one.lua
refused 1 'other.weight is missing' 'one.lua has changed since made/step-00000002 was made' -- train one.lua --resume made --quiet
cp kept.lua one.lua
run 0 train one.lua --set wide=2 --out wide --stop-at 2 --quiet
sed 's/, wide = 1//' one.lua >two.lua
refused 1 "'wide'" 'was made by the script one.lua, not by two.lua' -- train two.lua --resume wide --quiet
run 0 train one.lua --resume made --quiet
