#!/bin/sh
# The models beside Llama and GPT-2, by their examples, small: they learn, they resume bit for bit, an evaluation of a
# checkpoint is that of the run (batch_norm's running statistics and moe's bias are kept and read), experts tell what they
# hold, tokens without a place are seen by none, and options that mean nothing are refused at their line.
. "$ROOT/tests/e2e/common.sh"
IMAGES='--set image=8 --set batch=32 --set warmup=5 --set steps=24'
example() { echo "$ROOT/examples/$1.lua"; }

# learns NAME FACTOR OPTION...: after 24 steps the held-out loss is below FACTOR of the first loss and that of `sgl eval`, two
# halves are a whole, and so are two micro-batches but for roundings.
learns() {
    name=$1 factor=$2
    shift 2
    run 0 train "$(example "$name")" "$@" --out "$name" --log "$name.log" --quiet
    holds "$(log eval_loss "$name.log" 24) < $factor * $(log loss "$name.log" 1)"
    run 0 eval "$name" --json
    [ "$(sed -E 's/.*"eval_loss":([^,}]*).*/\1/' out)" = "$(log eval_loss "$name.log" 24)" ] || fail "another loss"
    run 0 train "$(example "$name")" "$@" --out half --log half.log --stop-at 9 --quiet
    run 0 train "$(example "$name")" --resume half --log half.log --quiet
    steps_of "$name.log" >a
    steps_of half.log >b
    same a b
    run 0 train "$(example "$name")" "$@" --set micro=2 --stop-at 3 --out micro --log micro.log --quiet
    holds "sqrt(($(log loss micro.log 3) / $(log loss "$name.log" 3) - 1) ^ 2) < 1e-4"
    rm -rf half half.log micro micro.log
}

# shellcheck disable=SC2086
{
    learns mlp 0.9 $IMAGES --set hidden=32 --set lr=1e-2
    learns convnet 0.9 $IMAGES --set width=4 --set stages=2 --set lr=1e-2
    learns vit 0.99 $IMAGES --set dim=16 --set layers=1 --set heads=2 --set lr=1e-2
    run 0 train "$(example convnet)" $IMAGES --set width=8 --set stages=2 --set norm=group --set steps=2 --out group
    says out ' accuracy '
    run 0 eval convnet
    says out ' targets' "accuracy $(printf %.4g "$(log eval_accuracy convnet.log 24)")"
    says_not out nats perplexity
    holds "$(log eval_accuracy convnet.log 24) > 0.1 && $(log eval_accuracy convnet.log 24) <= 1"
}

# Experts: in the log each one's share, which add up to 1, on the screen none of it.
make_text 8000 text
MOE='--set dim=16 --set layers=2 --set heads=2 --set kv_heads=1 --set ffn=16 --set experts=4 --set seq=16 --set batch=4
    --set warmup=5 --set steps=24 --set lr=1e-2 --set bias_rate=0.01 --set capacity=1'
# shellcheck disable=SC2086
learns moe 0.9 $MOE --data text
load() { log "blocks.0.moe/load.$1" moe.log "$2"; }
for step in 1 24; do
    holds "sqrt(($(load 0 $step) + $(load 1 $step) + $(load 2 $step) + $(load 3 $step) - 1) ^ 2) < 1e-5"
done
holds "$(log blocks.1.moe/dropped moe.log 1) > 0 && $(log blocks.1.moe/dropped moe.log 1) < 1"
# shellcheck disable=SC2086
run 0 train "$(example moe)" $MOE --data text --set steps=2 --out shown
says out ' loss '
says_not out 'load' 'dropped'
run 0 generate moe --prompt 'the ' --tokens 8 --seed 1

# Recurrent layers: they learn that b and c take turns after a, and a generation keeps their state from token to token.
awk 'BEGIN { for (i = 0; i < 1000; i++) printf "abac" }' >turns
for cell in gru lstm; do
    run 0 train "$(example lstm)" --data turns --set cell=$cell --set dim=8 --set hidden=16 --set layers=1 --set seq=16 \
        --set batch=8 --set warmup=5 --set lr=3e-2 --set steps=150 --out turns.$cell --quiet
    run 0 generate turns.$cell --prompt abaca --tokens 12 --temperature 0
    says out abacabacabacabaca
done
RECURRENT='--set dim=8 --set hidden=16 --set layers=2 --set seq=16 --set batch=8 --set warmup=5 --set steps=24 --set lr=2e-2'
# shellcheck disable=SC2086
learns lstm 0.9 --data text $RECURRENT --set dropout=0.1

# Two networks against each other.
run 0 train "$(example gan)" --set batch=32 --set hidden=16 --set steps=12 --out gan --log gan.log
says out ' judge_loss ' ' maker_loss ' ' far '
run 0 train "$(example gan)" --set batch=32 --set hidden=16 --set steps=12 --out half --log half.log --stop-at 5
run 0 train "$(example gan)" --resume half --log half.log
steps_of gan.log >a
steps_of half.log >b
same a b

# Padding: of 4 x 6 tokens the last two of each row are none. What stands there is seen by no expert and changes nothing; it
# takes no place from others either (capacity 0.5: one of each row and expert).
cat >padding.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { padded = 1.0, capacity = 0.5, group = "sequence", score = "softmax" }
local moe = nn.moe {
  dim = 5, hidden = 7, experts = 3, top_k = 1, capacity = cfg.capacity > 0 and cfg.capacity or nil, group = cfg.group,
  balance = 0.1, z_loss = 0.1, bias_rate = 0.01, score = cfg.score,
}
local model = nn.module("m", { moe = moe }, function(x, mask) return moe(x, { mask = mask }) end)
return sgl.job {
  model = model, optim = sgl.optim.sgd { lr = 0.1 }, steps = 3,
  loss = function(batch)
    local is_real = sgl.less(sgl.iota({ 4, 6 }, 1), 4)
    local x = sgl.select(is_real:unsqueeze(-1), batch.x, cfg.padded)
    local y = model(x, is_real)
    sgl.log("leaked", sgl.select(is_real:unsqueeze(-1), 0, y):abs():max())
    return (y * y):mean() + nn.auxiliary_loss()
  end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 4, 6, 5 } } },
    next = function(cursor)
      local x = {}
      for i = 1, 120 do x[i] = math.sin(cursor * 120 + i * i) end
      return { x = x }
    end,
  },
}
LUA
for options in '' '--set capacity=0' '--set group=batch' '--set score=sigmoid'; do
    # shellcheck disable=SC2086
    run 0 train padding.lua $options --out p1 --log p1.log --quiet
    # shellcheck disable=SC2086
    run 0 train padding.lua $options --set padded=-9 --out p2 --log p2.log --quiet
    steps_of p1.log | grep -v eval >a
    steps_of p2.log | grep -v eval >b
    same a b
    holds "$(log leaked p1.log 3) == 0"
    rm -rf p1 p2 p1.log p2.log
done

# The training decides: what is owed to the loss must be in it, what a layer keeps follows one call of a step.
sed 's/ + nn.auxiliary_loss()//' padding.lua >owed.lua
refused 1 "'moe' has an auxiliary loss that is in no loss: add nn.auxiliary_loss() to it" -- train owed.lua
sed 's/local y = model(x, is_real)/local y = model(model(x, is_real))/' padding.lua >twice.lua
refused 1 'twice.lua:14' 'buffer moe.bias {3}: the layer is called twice in one step' -- train twice.lua

# wrong TEXT LUA: the piece of a script fails at its line with the text.
wrong() {
    printf 'local sgl = require "sgl"\nlocal nn = sgl.nn\n%s\n' "$2" >wrong.lua
    refused 1 'wrong.lua:3' "$1" -- train wrong.lua
}
wrong 'moe: top_k (5) is more than the experts (4)' 'nn.moe { dim = 4, hidden = 4, experts = 4, top_k = 5 }'
wrong "moe: score must be 'softmax' or 'sigmoid', not 'softmin'" \
    'nn.moe { dim = 4, hidden = 4, experts = 4, top_k = 1, score = "softmin" }'
wrong "nn has no 'BatchNorm2d'; here it is 'batch_norm'" "nn.BatchNorm2d(4)"
wrong "moe: there is no option 'capasity'; did you mean 'capacity'?" \
    'nn.moe { dim = 4, hidden = 4, experts = 4, top_k = 1, capasity = 1 }'
wrong 'group_norm: channels (10) is no multiple of groups (4)' 'nn.group_norm(4, 10)'
wrong 'batch_norm: momentum must be at most 1, not 2' 'nn.batch_norm(4, { momentum = 2 })'
wrong 'conv2d: 6 and 8 channels do not make 4 groups' 'nn.conv2d(8, 6, 3, { groups = 4 })'
wrong 'conv1d: size has 2 entries for 1 spatial dimensions' 'nn.conv1d(8, 6, { 3, 3 })'
wrong "mlp: there is no activation 'rellu'; did you mean 'relu'?" 'nn.mlp(4, 4, { activation = "rellu" })'
wrong 'models.vit: image (10) is no multiple of patch (4)' 'sgl.models.vit { image = 10, patch = 4, channels = 1,
  classes = 2, dim = 4, layers = 1, heads = 1 }'
wrong "models.lstm: cell must be 'lstm' or 'gru', not 'rnn'" \
    'sgl.models.lstm { vocab = 9, dim = 4, hidden = 4, layers = 1, cell = "rnn" }'
wrong "models.convnet: norm must be 'batch' or 'group', not 'layer'" \
    'sgl.models.convnet { channels = 1, classes = 2, width = 4, stages = 1, blocks = 1, norm = "layer" }'

# A batch_norm that is called twice in a step follows both: 0.1 * 2, then 0.9 * 0.2 + 0.1 * 6.
cat >both.lua <<'LUA'
local sgl = require "sgl"
local norm = sgl.nn.batch_norm(1)
return sgl.job {
  model = sgl.nn.module("m", { norm = norm }, function() end),
  step = function(batch)
    local loss = sgl.square(norm(batch.x)):sum() + sgl.square(norm(batch.x + 4)):sum()
    return { loss = loss, mean = norm.running_mean():sum() }
  end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 2, 1 } } }, next = function() return { x = { 1, 3 } } end,
  },
  steps = 2,
}
LUA
run 0 train both.lua --out both --log both.log --quiet
holds "$(log mean both.log 1) == 0 && ($(log mean both.log 2) - 0.78) ^ 2 < 1e-12"
