#!/bin/sh
# What every optimizer can do, seen from outside: one kernel that updates all sections, frozen parameters that cost no
# gradient and no moments, averages that are saved, resumed, evaluated and generated with; options that are refused.
. "$ROOT/tests/e2e/common.sh"
GOLDEN="$ROOT/tests/golden/optimizers.lua"

# Elementwise optimizers: one kernel writes the parameters, the moments and the averages.
for kind in adamw lion; do
    run 0 graph "$GOLDEN" --set kind=$kind --program
    [ "$(grep -cE 'fused kernel .* -> .*f64\[102\]@state' out)" -eq 1 ] || fail "$kind: not one kernel updates all"
    [ "$(grep -cE -- '-> .*@state' out)" -eq 1 ] || fail "$kind: something else writes states"
done
says out 'state "lion.m/embed.weight"'
run 0 graph "$GOLDEN" --set kind=adamw --program
says out scatter_add 'state "adamw.ema/up"' # the gradient of the table
run 0 graph "$GOLDEN" --set kind=frozen --program
says_not out scatter_add '.m/embed.weight' '.v/embed.weight'
run 0 graph "$GOLDEN" --set kind=adafactor --program
says out 'state "adafactor.r/up" f64[8,1]' 'state "adafactor.c/up" f64[1,5]' 'state "adafactor.v/bias" f64[8]'
says_not out 'adafactor.v/up'
run 0 graph "$GOLDEN" --set kind=muon --program
says out 'state "muon.momentum/up"' 'state "muon.momentum/down"' 'state "muon.m/embed.weight"' 'state "muon.v/bias"'
says_not out 'muon.m/up' 'muon.momentum/embed.weight' 'muon.momentum/bias'

# A language model with averages, part of it frozen by the model, part by the optimizer.
make_text 20000 text.txt
cat >average.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { ema = true }
local model = sgl.models.llama { vocab = 256, dim = 16, layers = 2, heads = 2, kv_heads = 1, ffn = 32 }
nn.freeze(model.norm)
return sgl.job {
  model = model,
  loss = function(batch)
    sgl.log("frozen", model.norm.weight():sum() + model.blocks.children[1].attn.wq():abs():sum())
    return nn.cross_entropy(model(batch.tokens), batch.targets)
  end,
  data = sgl.data.text { path = "text.txt", seq = 16, batch = 4, held_out = 0.1 },
  optim = sgl.optim.lion { lr = 3e-3, weight_decay = 0.1, clip = 1, freeze = "blocks.0.*", ema = 0.98 },
  steps = 40, eval_every = 40, eval_batches = 4, ema = cfg.ema,
}
LUA
run 0 train average.lua --out whole --log whole.log
run 0 train average.lua --out half --log half.log --stop-at 17 --quiet
run 0 train average.lua --resume half --log half.log --quiet
steps_of whole.log >a
steps_of half.log >b
same a b
[ "$(log frozen whole.log 1)" = "$(log frozen whole.log 40)" ] || fail "what is frozen has moved"
holds "$(log loss whole.log 40) < 0.8 * $(log loss whole.log 1)"

# held_out ARGUMENT...: the loss that sgl eval tells.
held_out() {
    run 0 eval "$@" --batches 4 --json
    sed 's/.*"eval_loss":\([^,]*\).*/\1/' out
}
[ "$(held_out whole)" = "$(log eval_loss whole.log 40)" ] || fail "sgl eval: not the run's own held-out loss"
run 0 train average.lua --set ema=false --out plain --log plain.log --quiet
[ "$(log loss plain.log 40)" = "$(log loss whole.log 40)" ] || fail "averages change what is learnt"
[ "$(held_out plain)" = "$(log eval_loss plain.log 40)" ] || fail "sgl eval: not the run's own held-out loss"
[ "$(held_out plain)" != "$(held_out whole)" ] || fail "averages evaluate as the parameters do"
[ "$(held_out plain --ema)" = "$(held_out whole)" ] || fail "sgl eval --ema"
for which in plain whole; do
    run 0 generate $which --prompt "the " --tokens 40 --seed 3
    mv out $which.txt
done
run 0 generate plain --prompt "the " --tokens 40 --seed 3 --ema
same out whole.txt
differ plain.txt whole.txt

# bad CODE TEXT...: the optimizer is made so, and refused with these words.
bad() {
    sed "s/sgl.optim.lion .*/sgl.optim.$1,/" average.lua >bad.lua
    shift
    refused 1 bad.lua: "$@" -- train bad.lua --out nothing --quiet
}
bad 'lion { lr = 1, lr_scale = { ["embd.*"] = 2 } }' "lion: lr_scale: no parameter's path matches 'embd.*'" 'there are embed.weight, '
bad 'lion { lr = 1, lr_scale = { ["*.wq"] = 2, ["*.w*q"] = 1 } }' "both '*.w*q' and '*.wq' match"
bad 'lion { lr = 1, lr_scale = 2 }' 'lion: lr_scale must be a table'
bad 'lion { lr = 1, lr_scale = { norm = -1 } }' "lion: lr_scale['norm'] must be a finite number of at least 0, not -1"
bad 'lion { lr = 1, weight_decay = { ["*"] = 0.1 }, decays = print }' 'leave decays out'
bad 'lion { lr = 1, freeze = { embed = true } }' 'lion: freeze must be a pattern' "'embed'"
bad 'lion { lr = 1, freeze = "*" }' 'lion: every parameter is frozen'
bad 'lion { lr = 1, ema = 1 }' 'lion: ema must be a number of at least 0 and below 1'
bad 'lion { lr = 1 }' 'job: ema needs an optimizer that keeps averages'
bad 'muon { lr = 1, scale = "other" }' "muon: scale must be 'adamw' or 'original'"
bad 'muon { lr = 1, match = "block.*" }' "muon: match: no parameter's path matches 'block.*'"
bad 'adafactor { lr = 1, eps = 0 }' 'adafactor: eps must be a finite number above 0'
refused 1 "job: ema must be true or false, not 'maybe'" -- train average.lua --set job.ema=maybe --out nothing

# Muon takes the kernel of a convolution that match names as the matrix that it is: it goes the way of such a matrix.
cat >kernel.lua <<'LUA'
local sgl = require "sgl"
local cfg = sgl.config { match = "*" }
local function init(dims, dtype) return sgl.sin(sgl.iota({ 54 }, 0):cast(dtype)):reshape(dims) end
local kernel = sgl.nn.conv2d(2, 3, 3, { bias = false, init = init })
local matrix = sgl.nn.parameter { 3, 18, init = init }
local optim = sgl.optim.muon { lr = 1e-2, weight_decay = 0.1, match = cfg.match }
return sgl.job {
  model = sgl.nn.module("m", { kernel = kernel, matrix = matrix }, function() end),
  step = function()
    local w = kernel.weight():reshape(3, 18)
    optim:minimize(sgl.cos(w * 3):sum() + sgl.cos(matrix() * 3):sum(), { kernel, matrix })
    return { apart = (w - matrix()):abs():max(), size = w:abs():sum() }
  end,
  data = sgl.data.batches { feeds = {}, next = function() return {} end },
  steps = 5, plan = { precision = "fp64" },
}
LUA
run 0 train kernel.lua --out kernel --log kernel.log --quiet
holds "$(log apart kernel.log 5) < 1e-12 && $(log size kernel.log 5) != $(log size kernel.log 1)"
grep -aq '"muon.momentum/kernel.weight"' kernel/step-00000005/states.safetensors || fail "the kernel is left to AdamW"
run 0 train kernel.lua --set match=matrix --out matrix --log matrix.log --quiet
holds "$(log apart matrix.log 5) > 1e-3"
grep -aq '"muon.v/kernel.weight"' matrix/step-00000005/states.safetensors || fail "the kernel is not left to AdamW"
