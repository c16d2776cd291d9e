#!/bin/sh
# What no run can mean is refused before anything is made, with the line of the script and never one of the library:
# impossible optimizers, schedules, data and jobs, sizes that do not fit, children of a module that are none.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text

# A model of the smallest kind; the lines that a case replaces have numbers of their own.
cat >base.lua <<'LUA'
local sgl = require "sgl"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data
local embed = nn.embedding(256, 8)
local layer = nn.linear(8, 8)
local model = nn.module("m", { embed = embed, layer = layer }, function(t) return nn.tied_head(embed, layer(embed(t))) end)
local rate = 1e-3
local optimizer = optim.adamw { lr = rate }
local source = data.text { path = "text", seq = 8, batch = 2 }
local settings = { steps = 2, eval_batches = 1 }
return sgl.job {
  model = model, loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = source, optim = optimizer,
  steps = settings.steps, eval_every = settings.eval_every, eval_batches = settings.eval_batches, keep = settings.keep,
}
LUA
run 0 train base.lua --out base --quiet

# bad LINE CODE TEXT...: the base with CODE as that line is refused there, with each text.
bad() {
    line=$1
    code=$2
    shift 2
    awk -v line="$line" -v code="$code" 'NR == line { print code; next } { print }' base.lua >case.lua
    run 1 train case.lua --out nothing
    head -n 1 err | grep -q "^sgl: case.lua:$line: " || fail "'$code': the first line names not case.lua:$line"
    says_not err 'stdlib/' '-nan'
    for text in "$@"; do says err "$text"; done
    [ ! -e nothing ] || fail "a folder was made"
}

optimizer() {
    code=$1
    shift
    bad 7 "local optimizer = optim.$code" "$@"
}
optimizer 'adamw { lr = -1 }' 'adamw: lr must be' 'at least 0' 'not -1'
optimizer 'adamw { lr = 0 / 0 }' 'adamw: lr must be' 'not nan'
optimizer 'adamw { lr = math.huge }' 'adamw: lr must be'
optimizer 'adamw { lr = "1e-3" }' 'adamw: lr must be'
optimizer 'adamw { }' 'adamw: lr must be given'
optimizer 'adamw()' 'adamw: lr must be given'
optimizer 'adamw { lr = rate, weight_decay = -0.1 }' 'adamw: weight_decay must be' 'not -0.1'
optimizer 'adamw { lr = rate, beta1 = 1 }' 'adamw: beta1 must be' 'below 1' 'not 1'
optimizer 'adamw { lr = rate, beta2 = -0.1 }' 'adamw: beta2 must be'
optimizer 'adamw { lr = rate, beta2 = 0 / 0 }' 'adamw: beta2 must be' 'not nan'
optimizer 'adamw { lr = rate, eps = 0 }' 'adamw: eps must be' 'above 0'
optimizer 'adamw { lr = rate, clip = 0 }' 'adamw: clip must be' 'above 0' 'not 0'
optimizer 'adamw { lr = rate, clip = -1 }' 'adamw: clip must be'
optimizer 'adamw { lr = rate, weightdecay = 0.1 }' "no option 'weightdecay'" "'weight_decay'"
optimizer 'adamw { lr = rate, decays = 1 }' 'adamw: decays must be a function'
optimizer 'adamw { lr = function() return "quick" end }' 'the schedule must give' 'quick'
optimizer 'sgd { lr = rate, momentum = 1 }' 'sgd: momentum must be'
optimizer 'sgd { lr = rate, nesterov = true }' 'sgd: nesterov needs a momentum'
optimizer 'sgd { lr = -rate }' 'sgd: lr must be' 'not -0.001'

schedule() {
    code=$1
    shift
    bad 6 "local rate = optim.$code" "$@"
}
schedule 'constant(-1)' 'optim.constant: rate must be' 'not -1'
schedule 'warmup_cosine { peak = -1 }' 'optim.warmup_cosine: peak must be' 'not -1'
schedule 'warmup_cosine { warmup = 5 }' 'optim.warmup_cosine: peak must be' 'nil'
schedule 'warmup_cosine { peak = 1, warmup = -1 }' 'optim.warmup_cosine: warmup must be'
schedule 'warmup_cosine { peak = 1, warmup = 0.5 }' 'optim.warmup_cosine: warmup must be an integer' 'not 0.5'
schedule 'warmup_cosine { peak = 1, warmup = 11, steps = 10 }' 'warmup (11)' 'steps (10)'
schedule 'warmup_cosine { peak = 1, warmpu = 11 }' "'warmpu'" "'warmup'"
schedule 'linear { peak = 1, final = 0 / 0 }' 'optim.linear: final must be' 'not nan'
schedule 'linear { peak = 1, steps = 0 }' 'optim.linear: steps must be'
schedule 'wsd { peak = 1 }' 'optim.wsd: decay must be'
schedule 'wsd { peak = 1, warmup = 6, decay = 5, steps = 10 }' '6 + 5' 'steps (10)'
schedule 'linear(3)' 'optim.linear: give a table'

source() {
    code=$1
    shift
    bad 8 "local source = data.$code" "$@"
}
source 'text { path = "text", seq = 0, batch = 2 }' 'data.text: seq must be' 'not 0'
source 'text { path = "text", seq = 8, batch = 2.5 }' 'data.text: batch must be an integer' 'not 2.5'
source 'text { path = "text", seq = 8, batch = 4 / 2 }' 'data.text: batch must be an integer' '//'
source 'text { path = "text", seq = 8, batch = 2, held_out = 0.6 }' 'held_out' '0.6'
source 'text { path = "text", seq = 8, batch = 2, held_out = 0 / 0 }' 'held_out must be' 'not nan'
source 'text { path = {}, seq = 8, batch = 2 }' 'data.text: give path'
source 'text { path = { "text", 3 }, seq = 8, batch = 2 }' 'path 2 must be a string' 'not 3'
source 'text { path = "text", seq = 8, batch = 2, heldout = 0.1 }' "'heldout'" "'held_out'"
source 'tokens { path = "text", seq = 8, batch = 2 }' 'data.tokens: vocab must be'
source 'batches { feeds = 3, next = print }' 'data.batches: give feeds'
source 'batches { feeds = { x = { dtype = "f32", dims = { -1 } } }, next = print }' "feed 'x'" 'extent 1'

source 'tokens { path = "text", seq = 8, batch = 2, vocab = 256, format = "u8" }' "no format 'u8'" 'u16, u32 and llmc'
source 'batches { feeds = { x = { dtype = "f33", dims = { 1 } } }, next = print }' "feed 'x'" "no dtype 'f33'" "'f32'"
bad 9 'do return sgl.job { plan = 3, model = model, loss = print, data = source, optim = optimizer } end' 'job: plan must be' 'not 3'
awk 'NR == 10 { print; print "  plan = { micro = 2 },"; next } { print }' base.lua >plan.lua
run 0 train plan.lua --out plan --quiet
awk 'NR == 10 { print; print "  plan = { micor = 2 },"; next } { print }' base.lua >plan.lua
refused 1 'plan.lua:10: plan: there is no field' "'micor'; did you mean 'micro'?" -- train plan.lua --out nothing

# The job's own numbers: the line of sgl.job.
job() {
    awk -v code="local settings = { $1 }" 'NR == 9 { print code; next } { print }' base.lua >case.lua
    run 1 train case.lua --out nothing
    head -n 1 err | grep -q "^sgl: case.lua:10: job: $2" || fail "'$1' is told otherwise"
}
job 'steps = -1' 'steps must be'
job 'steps = 0 / 0' 'steps must be .* not nan'
job 'steps = "many"' 'steps must be'
job 'steps = 2.5' 'steps must be'
job 'keep = -1' 'keep must be'
refused 1 'base.lua:10: job: keep must be' "'x'" -- train base.lua --set job.keep=x --out nothing

layer() {
    code=$1
    shift
    bad 4 "local layer = nn.$code" "$@"
}
layer 'linear(8, 0)' 'linear: output must be' 'not 0'
layer 'linear(8 / 1, 8)' 'linear: input must be an integer' '8.0' '//'
layer 'linear(8)' 'linear: output must be' 'nil'
layer 'linear(8, 8, { biass = true })' "'biass'" "'bias'"
layer 'linear(8, 8, { bias = 1 })' 'linear: bias must be true or false'
layer 'linear(8, 8, { init = 0.02 })' 'linear: init must be a function'
layer 'attention { dim = 8, heads = 3 }' 'attention: dim (8) is no multiple of heads (3)'
layer 'attention { dim = 8, heads = 4, kv_heads = 3 }' 'heads (4)' 'kv_heads (3)'
layer 'attention { dim = 8, heads = 0 }' 'attention: heads must be'
layer 'attention { dim = 8, heads = 2, kv_heads = 0 }' 'attention: kv_heads must be'
layer 'attention { dim = 8, heads = 8, rope = 1e4 }' 'head_dim is 1' 'even'
layer 'attention { dim = 8, heads = 2, window = 0 }' 'attention: window must be'
layer 'attention { dim = 8, heads = 2, casual = true }' "'casual'" "'causal'"
layer 'mlp(8, -8)' 'mlp: hidden must be' 'not -8'
layer 'swiglu(0, 8)' 'swiglu: dim must be'
layer 'rms_norm(0)' 'rms_norm: dim must be'
layer 'layer_norm(8, { eps = -1 })' 'layer_norm: eps must be'
layer 'position(0, 8)' 'position: context must be'
layer 'head(8, 0)' 'head: vocab must be'
layer 'embedding(2^8, 8)' 'embedding: vocab must be an integer' '256.0'
layer 'dropout(1)' 'dropout: rate must be'
layer 'stack(-1, print)' 'stack: count must be'
layer 'parameter { 8, 0, init = nn.init.zeros }' 'parameter: extent 2 must be'
layer 'parameter { 8, 8, init = nn.init.zeros, tp = 2 }' 'parameter: tp is 2, and there are 2 dimensions, counted from 0'
layer 'parameter { 8, 8, init = nn.init.zeros, pt = 0 }' 'parameter: ' "'pt'"
layer 'parameter { 8, 8, init = nn.init.normal(0 / 0) }' 'init.normal: std must be' 'not nan'
bad 5 'local model = sgl.models.llama { vocab = 256, dim = 8, layers = 0, heads = 2, ffn = 8 }' 'models.llama: layers must be'
bad 5 'local model = sgl.models.gpt2 { vocab = 256, dim = 9, layers = 1, heads = 2, seq = 8 }' 'dim (9)' 'heads (2)'
# A model takes its fields out of the script's whole configuration.
bad 5 'local model = sgl.models.llama(sgl.config { vocab = 256, dim = 8, layers = 1, heads = 2, seq = 8 })' 'models.llama: ffn'
bad 5 'local model = sgl.models.llama(3)' 'models.llama: the configuration must be a table'

bad 5 'local model = sgl.models.llama { vocab = 256, dim = 8, layers = 1, heads = 2, kvheads = 1, ffn = 8 }' "'kvheads'" "'kv_heads'"

# Names of other libraries, and all that there are where none is near.
optimizer 'adamw { lr = rate, betas = { 0.9, 0.99 } }' "no option 'betas'; here it is 'beta1' and 'beta2'"
optimizer 'adamw { learning_rate = rate }' "'learning_rate'; here it is 'lr'"
optimizer 'Adam { lr = rate }' "optim has no 'Adam'"
optimizer 'sgd { lr = rate, zzzz = 1 }' "'zzzz'; there are clip, decays, ema, freeze, lr, lr_scale, momentum, name, nesterov, weight_decay"
schedule 'cosine { peak = 1, T_max = 10 }' "'T_max'; here it is 'steps'"
layer 'Linear(8, 8)' "here it is 'linear'"
layer 'attention { dim = 8, n_heads = 2 }' "here it is 'heads'"
layer 'ReLU()' "nn has no 'ReLU'; it is a function of tensors, sgl.relu"
layer 'mse_loss()' 'the mean square is (y - t):square():mean()'
optimizer 'adamw({ layer })' 'adamw: options are given by name'
optimizer 'adamw({ layer }, { lr = rate })' 'adamw takes one table, its options by name; got 1 more: it is written optim.adamw { ... }'
layer 'zork(8)' 'there are attention, ' 'tied_head'
bad 5 'local model = sgl.randn(2, 3)' "here it is 'normal'"
bad 5 'local model = sgl.ones(2, 3)' 'ones: the extents are a list: sgl.ones({ 2, 3 })'
bad 5 'local model = sgl.iota(3)' 'sgl.iota({ 2, 3 })'
bad 5 'local plan = sgl.plan(3)' 'plan: give a table'
bad 5 'local plan = sgl.plan { mesh = 2 }' 'plan: mesh must be a table'
bad 5 'local c = sgl.config { lr = 1e-3, many = 1 / 0 } c.x = c.zzzz' "'zzzz'; there are lr, many"
refused 1 'plan: there is no field' -- train base.lua --set plan.=1 --out nothing
refused 1 'plan: mesh is set by its axes' -- train base.lua --set plan.mesh=2 --out nothing
refused 1 'job: there is no number' -- train base.lua --set job.=2 --out nothing
refused 1 "lr must be a finite number" "'1e999'" -- train "$LLAMA" --set lr=1e999 --out nothing

# More positions than were learnt: at the trace of the model, not when a text grows long.
sed 's/^local layer = .*/local layer = nn.position(16, 8)/; s/^return sgl.job {/&\n  context = settings.context,/' base.lua >positions.lua
run 0 train positions.lua --set job.context=16 --out positions --quiet
refused 1 "positions.lua:5: position: the job's context (17) is longer than the 16 learnt positions" -- train positions.lua \
    --set job.context=17 --out nothing

# Whatever the library has refuses more arguments than it takes; only what takes a list as its arguments takes many.
cat >exact.lua <<'LUA'
local sgl = require "sgl"
local takes_many = { broadcast = true, cond = true, einsum = true, index = true, reshape = true, transpose = true }
local checked, many = 0, {}
for i = 1, 40 do many[i] = 7 end
local function check(library, name, member)
  if type(member) ~= "function" or takes_many[name] then return end
  local fine, message = pcall(member, table.unpack(many))
  checked = checked + 1
  if fine or not message:find("^exact.lua:%d+: " .. name .. " takes .*got %d+ more: it is written ") then
    error(library .. "." .. name .. " takes 40 arguments: " .. tostring(message))
  end
end
for name, member in next, require "sgl.ops" do check("ops", name, member) end
for name, member in next, sgl do check("sgl", name, member) end
for _, name in ipairs { "nn", "optim", "models", "data" } do
  for member in ("adafactor adamw attention auxiliary_loss avg_pool batch_norm batches buffer conv1d conv2d conv_transpose1d "
    .. "conv_transpose2d convnet cosine cross_entropy dropout embedding freeze geglu gpt2 group_norm gru head "
    .. "layer_norm linear lion llama lstm max_pool mlp moe module muon parameter position recompute rms_norm rope sgd stack swiglu text "
    .. "tied_head tokens vit warmup_cosine wsd"):gmatch "%S+" do
    local found, value = pcall(function() return sgl[name][member] end)
    if found then check(name, member, value) end
  end
end
print(checked .. " functions")
LUA
run 1 graph exact.lua
says err ' functions' 'it returned nothing' # print writes there
holds "$(grep ' functions' err | cut -d' ' -f1) > 190"

# Children of a module.
child() {
    code=$1
    shift
    bad 5 "local model = nn.module('m', { embed = embed, $code }, function(t) return nn.tied_head(embed, embed(t)) end)" "$@"
}
child 'layer = 3' "child 'layer'" 'a number'
child 'layer = print' "child 'layer'" 'a function'
child 'layers = { layer, false }' "child 'layers.1'" 'a boolean'
child 'layers = { first = layer }' "child 'layers'" "'first'" 'list'
child '[true] = layer' "key is a boolean"
child 'layer = nn.tied_head' "child 'layer'"
