#!/bin/sh
# `sgl plan`: bytes, feeds and exchanges of any rank of a mesh, none of which is started; the bytes sent follow the formula, and
# micro-batches exchange no more than one batch does. `sgl graph` and `sgl memory` take a rank of a mesh, too.
. "$ROOT/tests/e2e/common.sh"

# number KEY: of the JSON in out; of several of that name the sum.
number() { grep -o "\"$1\":[0-9]*" out | awk -F: '{ sum += $2 } END { printf "%d", sum }'; }

# shellcheck disable=SC2086
plan() { run 0 plan "$LLAMA" $TINY "$@"; }

plan
says out 'plan of program "train", rank 0 of 1' 'mesh of one rank' 'exchanges of a step: none' 'tokens                   i32[4,16]'
plan --format json
parameters=$(number parameter_bytes)
[ "$(number optimizer_bytes)" -eq $((2 * parameters)) ] || fail "AdamW keeps two moments"
[ "$(number count)" -eq 0 ] || fail "one rank exchanges"
holds "$(number state_bytes) >= 3 * $parameters"

for ranks in 2 4; do
    plan --mesh dp=$ranks --format json
    sent=$(number bytes_sent) count=$(number count)
    exact=$((2 * (ranks - 1) * parameters / ranks))
    # Beside the gradients: the loss and its count.
    [ "$sent" -ge "$exact" ] && [ "$sent" -le $((exact + 64)) ] || fail "dp=$ranks sends $sent bytes, $exact by the formula"
    [ "$(number parameter_bytes)" -eq "$parameters" ] || fail "parameters are whole under dp"
    plan --mesh dp=$ranks --format json --set plan.micro=$((4 / ranks))
    [ "$(number bytes_sent)" -eq "$sent" ] && [ "$(number count)" -eq "$count" ] || fail "micro-batches exchange more"
done

plan --mesh dp=4 --rank 3
says out 'rank 3 of 4' 'mesh dp=4 (here 3)' 'i32[1,16] of i32[4,16], from [3,0] on' 'all_reduce           over dp'
plan --mesh dp=2,tp=2 --rank 2
says out 'mesh dp=2 (here 1), tp=2 (here 0)' 'from [2,0] on'
# Rows that do not come out even: the first ranks have one more.
plan --mesh dp=4 --rank 0 --set batch=6
says out 'i32[2,16] of i32[6,16], from [0,0] on'
plan --mesh dp=4 --rank 3 --set batch=6
says out 'i32[1,16] of i32[6,16], from [5,0] on'
plan --graph decode --format json
[ "$(number count)" -eq 0 ] || fail "one rank exchanges"

# shellcheck disable=SC2086
run 0 graph "$LLAMA" $TINY --mesh dp=2 --after shard --rank 1
says out 'all_reduce' 'i32[2,16]'
# shellcheck disable=SC2086
run 0 memory "$LLAMA" $TINY --mesh dp=2 --rank 1 --format json
half=$(number arena_bytes)
# shellcheck disable=SC2086
run 0 memory "$LLAMA" $TINY --format json
holds "$half < 0.8 * $(number arena_bytes)"

for command in plan graph memory; do
    refused 1 'there is no rank 2' 'spans 2' -- $command "$LLAMA" --mesh dp=2 --rank 2 $([ $command != graph ] || echo --after all)
    refused 2 '--rank' "'-1'" -- $command "$LLAMA" --rank -1
done
refused 1 "'yaml'" 'text and json' -- plan "$LLAMA" --format yaml
refused 1 "no graph 'trian'" -- plan "$LLAMA" --graph trian

# Recipes are joined; a field stands once.
recipe() { # PLAN: a script of that plan
    cat >recipe.lua <<END
local sgl = require "sgl"
local model = sgl.nn.linear(4, 4, { tp = 0 })
return sgl.job {
  model = model,
  loss = function(batch) return sgl.mean(sgl.square(model(batch.x))) end,
  data = sgl.data.batches { feeds = { x = { dtype = "f32", dims = { ${2:-12}, 4 } } }, next = function() return nil end },
  optim = sgl.optim.sgd { lr = 0.1 },
  plan = sgl.plan { $1 },
}
END
}
recipe 'sgl.plan.zero { ranks = 2, level = 1 }, sgl.plan.data { ranks = 3 }, sgl.plan.tensor { ranks = 2 }, micro = 2'
run 0 plan recipe.lua
says out 'rank 0 of 12' 'dp=3' 'fsdp=2' 'tp=2' 'over dp+fsdp'
# What another rank alone cannot hold is said with its number.
# shellcheck disable=SC2086
run 1 plan "$LLAMA" $TINY --mesh pp=2 --set layers=6 --set plan.micro=2 --set plan.schedule=gpipe --set plan.cut=blocks.1 --set plan.memory=150KiB
says err 'rank 1 of 2: ' 'plan: memory is 153600 bytes'
# Two ranks have 2 rows, the others 1, and none in the second turn; where no rank has 2, there is nothing to cut.
recipe 'sgl.plan.zero { ranks = 2, level = 1 }, sgl.plan.data { ranks = 3 }, micro = 2' 8
run 0 plan recipe.lua --rank 5
says out '6 ranks come to the end of a step, on paper'
recipe 'sgl.plan.zero { ranks = 2, level = 1 }, sgl.plan.data { ranks = 3 }, micro = 2' 6
run 1 plan recipe.lua
says err "the feed 'x' has 6 rows" 'along dp+fsdp (of 6) has 1 at most' "plan's 2 micro-batches; set micro to 1 at most"
recipe 'sgl.plan.zero { ranks = 2 }, sgl.plan.zero { ranks = 3 }'
run 1 plan recipe.lua
says err 'recipe.lua:8' 'the axis fsdp is given twice'
recipe 'sgl.plan.zero { level = 1 }'
run 1 plan recipe.lua
says err 'recipe.lua:8' 'plan.zero: ranks'
recipe 'params = { ["wieght"] = { tp = 0 } }, mesh = { tp = 2 }'
run 1 plan recipe.lua
says err "'wieght' names no parameter; did you mean 'weight'?"
recipe 'params = { weight = { tp = 2 } }, mesh = { tp = 2 }'
run 1 plan recipe.lua
says err "dimension 2 of parameter 'weight'" 'tp=2' 'it has 2, counted from 0'
recipe 'params = { weight = { pt = 0 } }'
run 1 plan recipe.lua
says err "no mesh axis 'pt'" 'there are dp, fsdp, tp'
recipe 'params = { weight = { tp = false } }, mesh = { tp = 2 }'
run 0 plan recipe.lua
# Over fsdp goes what another axis has left, whoever says so: along one dimension two axes would send more.
recipe 'params = { weight = { tp = 1 } }, mesh = { fsdp = 2, tp = 2 }'
run 0 plan recipe.lua
says out 'f32[2,2]{fsdp:0,tp:1}'
recipe 'params = { weight = { tp = 0 } }, mesh = { fsdp = 2, tp = 2 }'
run 0 plan recipe.lua
says out 'f32[2,2]{fsdp:1,tp:0}'
recipe 'params = { weight = { tp = false } }, mesh = { fsdp = 2, tp = 2 }'
run 0 plan recipe.lua
says out 'f32[2,4]{fsdp:0}'
# What splits nothing is said.
run 0 plan "$LLAMA" --mesh dp=4 --set plan.zero=1
says err 'llama.lua:44: plan: zero = 1 splits over fsdp' 'fsdp = 4 in the place of dp = 4'
run 0 plan "$LLAMA" --mesh pp=2
says err 'plan: pp = 2 has no schedule'
for mesh in dp=1 dp=2,fsdp=2; do
    run 0 plan "$LLAMA" --mesh $mesh --set plan.zero=1
    [ ! -s err ] || fail "it warns of $mesh"
done
run 0 plan "$LLAMA" --mesh dp=2,pp=2 --set plan.schedule=1f1b
[ ! -s err ] || fail "it warns of stages"

# Blocks that go round a ring are sent whole: of 4 layers, keys and values once forward, and twice backward, 256 KiB each.
run 0 plan "$LLAMA" --mesh cp=2 --set plan.attention=ring
says out 'ring_shift           over cp                2 ranks       24 times            6,291,456'
# Small sums go together, after parts that were handed out, and of numbers that a mixture of experts tells.
run 0 plan "$LLAMA" --mesh dp=2,fsdp=2
grep -q 'all_reduce  *over dp  .* 2 times  *3,281,408$' out || fail "sums of parts over dp go one by one"
run 0 plan "$ROOT/examples/moe.lua" --mesh dp=4
[ "$(awk '$1 == "all_reduce" { print $6 }' out)" -lt 12 ] || fail "numbers that are told go one by one"

# Stages of a pipeline: every schedule comes to its end on paper; one of more chunks hands over more often.
FOUR="--mesh pp=2 --set layers=4 --set plan.micro=4 --rank 0"
for schedule in gpipe 1f1b interleaved zero-bubble; do
    # shellcheck disable=SC2086
    plan $FOUR --set plan.schedule=$schedule
    says out 'all 2 ranks come to the end of a step, on paper'
    # shellcheck disable=SC2086
    plan $FOUR --set plan.schedule=$schedule --format json
    eval "sent_$(echo "$schedule" | tr -d -)=$(number bytes_sent)"
done
# shellcheck disable=SC2154
{
    [ "$sent_gpipe" -eq "$sent_1f1b" ] && [ "$sent_zerobubble" -eq "$sent_1f1b" ] || fail "schedules of one chunk send alike"
    # Rank 0 has chunks 0 and 2: for each of 4 micro-batches, of 1,024 bytes, one more forward, and one backward.
    [ "$sent_interleaved" -eq $((sent_1f1b + 2 * 4 * 1024)) ] || fail "interleaved sends $sent_interleaved, 1f1b $sent_1f1b"
}
# shellcheck disable=SC2086
{
    plan $FOUR --set plan.schedule=1f1b --set plan.cut=blocks.1
    grep -q '^  adamw.m/blocks.0.attn.wq  *state  *f32\[16,16\]' out || fail "blocks.0 begins the first stage"
    says_not out 'adamw.m/blocks.1.attn.wq'
    plan --mesh pp=4 --set layers=12 --set batch=10 --set plan.micro=5 --set plan.schedule=interleaved --set plan.chunks=3 --rank 3
    says out 'all 4 ranks come to the end of a step, on paper'
    grep -q '^  adamw.m/blocks.11.attn.wq  *state  *f32\[16,16\]' out || fail "the last chunk is on the last stage"
    # Of the norm that gradients are clipped by each stage hands over one number to each other, however many its terms are; beside
    # them one activation and one gradient for each micro-batch.
    for layers in 8 24; do
        plan --mesh pp=8 --set layers=$layers --set batch=8 --set plan.micro=4 --set plan.schedule=1f1b --rank 3
        grep -q '^  send  *over pp  *8 ranks  *15 times' out || fail "$layers layers: $(grep '^  send' out), not 2 * 4 + 7"
    done
    # In fp16 gradients are unscaled where they are, and no more crosses than one more number to each other stage.
    for precision in bf16 fp16; do
        plan --mesh pp=4 --set layers=8 --set plan.micro=4 --set plan.schedule=1f1b --rank 1 --set plan.precision=$precision --format json
        eval "sent_$precision=$(number bytes_sent)"
    done
    # shellcheck disable=SC2154
    holds "$sent_fp16 == $sent_bf16 + 3 * 4"
    run 1 plan "$LLAMA" $TINY $FOUR --set plan.schedule=interleaved --set plan.chunks=4
    says err 'pp = 2 stages of chunks = 4 are 8' 'modules to cut between'
    run 1 plan "$LLAMA" $TINY $FOUR --set plan.schedule=1f1b --set plan.cut=blocks.7
    says err "'blocks.7' is no module" 'blocks.0, blocks.1, blocks.2, blocks.3'
}
# And idles as it should: where arithmetic is all that takes time, gpipe and 1f1b alike, the others less.
for schedule in gpipe 1f1b interleaved zero-bubble; do
    plan --mesh pp=4 --set layers=8 --set dim=32 --set ffn=96 --set seq=32 --set batch=16 --set plan.micro=8 \
        --set plan.schedule=$schedule --machine tflops=0.001,gbytes_s=1000,latency_us=0.01,gbps=1000
    eval "step_$(echo "$schedule" | tr -d -)=$(sed -n 's/^a step on .*: \([0-9.e-]*\) s, of which.*/\1/p' out)"
done
# shellcheck disable=SC2154
{
    holds "$step_1f1b < 1.01 * $step_gpipe && $step_gpipe < 1.01 * $step_1f1b"
    holds "$step_interleaved < 0.95 * $step_1f1b"
    holds "$step_zerobubble < 0.9 * $step_1f1b"
}
recipe 'sgl.plan.pipeline { stages = 2, schedule = "zerobubble" }'
run 1 plan recipe.lua
says err 'recipe.lua:8' "not 'zerobubble'" "did you mean 'zero-bubble'"
recipe 'sgl.plan.pipeline { stages = 2, cut = { blocks = 5 } }'
run 1 plan recipe.lua
says err 'recipe.lua:8' 'cut[blocks] must be a module'
recipe 'sgl.plan.pipeline { stages = 2, chunks = 0 }'
run 1 plan recipe.lua
says err 'recipe.lua:8' 'plan.pipeline: chunks must be an integer of at least 1'

# A script says how a value is laid out; a mesh without the axis has nothing to do.
shard() { sed "s/square(model(batch.x))/square(model(sgl.shard(batch.x, $1)))/" recipe.lua >shard.lua; }
recipe ''
shard '{ tp = 1 }'
run 0 graph shard.lua --after shard
says_not out 'laid_out('
run 0 graph shard.lua --mesh tp=2 --after shard
says out '{tp:1}'
says_not out 'laid_out('
shard '{ tp = 2 }'
run 1 graph shard.lua
says err 'shard.lua:5' 'axis 2'
shard '{ pt = 1 }'
run 1 graph shard.lua
says err "no mesh axis 'pt'"

# What a recipe and a level can be.
recipe 'sgl.plan.zero { ranks = 2, level = 4 }'
run 1 plan recipe.lua
says err 'recipe.lua:8' 'zero is a level from 0 to 3'
recipe '"zero"'
run 1 plan recipe.lua
says err 'recipe.lua:8' 'a recipe is what sgl.plan.data, zero, tensor, sequence, context, expert or pipeline give'
recipe 'sgl.plan.tensor { ranks = 2 }, mesh = { tp = 2 }'
run 1 plan recipe.lua
says err 'recipe.lua:8' 'the axis tp is given twice'
recipe 'sgl.plan.data { ranks = 2, level = 1 }'
run 1 plan recipe.lua
says err 'recipe.lua:8' "plan.data" "'level'"
recipe 'params = { ["head weight"] = { tp = 0 } }'
run 1 plan recipe.lua
says err 'recipe.lua:8' 'its keys are patterns of names'
recipe 'params = { weight = 0 }'
run 1 plan recipe.lua
says err "params['weight'] must be a table of axes"
recipe 'params = { weight = { tp = 8 } }'
run 1 plan recipe.lua
says err "params['weight'].tp must be a dimension, from 0, or false, not 8"

# A layer is split as it says itself, not as another one whose name its pattern would fit.
cat >nested.lua <<'END'
local sgl = require "sgl"
local nn = sgl.nn
local model = nn.stack(2, function()
  local inner, weight = nn.linear(4, 4), nn.parameter { 4, 4, init = nn.init.ones, tp = 0 }
  return nn.module("block", { inner = inner, weight = weight }, function(x) return inner(sgl.linear(x, weight())) end)
end)
return sgl.job {
  model = model,
  loss = function(batch) return sgl.mean(sgl.square(model(batch.x))) end,
  data = sgl.data.batches { feeds = { x = { dtype = "f32", dims = { 8, 4 } } }, next = function() return nil end },
  optim = sgl.optim.sgd { lr = 0.1 },
  plan = sgl.plan { mesh = { tp = 2 } },
}
END
run 0 plan nested.lua --format json
[ "$(number parameter_bytes)" -eq $((2 * (4 * 4 + 2 * 4) * 4)) ] || fail "inner.weight is whole, weight is split"

# A head of its own is handed out by its rows, as the embedding is: of 33 rank 0 has 17.
head -n 2 nested.lua >head.lua
cat >>head.lua <<'END'
local embed, head = nn.embedding(33, 8), nn.head(8, 33)
local model = nn.module("m", { embed = embed, head = head }, function(tokens) return head(embed(tokens)) end)
local rows = { dtype = "i32", dims = { 4, 4 } }
return sgl.job {
  model = model,
  loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.batches { feeds = { tokens = rows, targets = rows }, next = function() return nil end },
  optim = sgl.optim.sgd { lr = 0.1 },
}
END
run 0 plan head.lua --mesh tp=2 --format json
[ "$(number parameter_bytes)" -eq $((2 * 17 * 8 * 4)) ] || fail "the embedding and the head are split over tp"

# Sequence: what goes from block to block is a part of the sequence on each rank of tp; sums become as many bytes of parts handed out
# and gathered, in the forward to the byte.
sed 's/plan = sgl.plan.*/plan = sgl.plan { sgl.plan.sequence { ranks = 2 }, sgl.plan.data { ranks = 2 } },/' "$LLAMA" >sequence.lua
tiny='--set dim=32 --set layers=2 --set heads=2 --set kv_heads=2 --set ffn=64 --set seq=16 --set batch=8'
# shellcheck disable=SC2086
run 0 graph sequence.lua $tiny --after shard
says out '{dp:0,tp:1} of [8,16,32] from [0,0,0]'
sent() { sed -n "s/^ *$1 *over tp  .* times *\([0-9,]*\)$/\1/p" out | tr -d ,; }
# shellcheck disable=SC2086
run 0 plan sequence.lua $tiny --graph eval
gathered=$(sent all_gather) handed=$(sent reduce_scatter) left=$(sent all_reduce)
# shellcheck disable=SC2086
run 0 plan "$LLAMA" $tiny --mesh dp=2,tp=2 --graph eval
[ -n "$gathered" ] && [ -n "$handed" ] && [ -n "$(sent all_reduce)" ] || fail "nothing is exchanged over tp"
holds "$gathered == 5 * 4 * 16 * 32 * 4 / 2 && $handed == $gathered && $gathered + $handed + $left == $(sent all_reduce)"
run 1 plan sequence.lua --set plan.activations='blocs.* tp:1'
says err "plan: activations: 'blocs.*' is the path of no module"
run 1 plan sequence.lua --set plan.activations='blocks.* tpp:1'
says err "plan: activations: 'blocks.* tpp:1' is not of the form"
sed 's/ranks = 2 }, sgl.plan.data/ranks = 2, block = 3 }, sgl.plan.data/' sequence.lua >bad.lua
run 1 plan bad.lua
says err 'plan.sequence' "'block'"

# All ranks on paper: the order of their exchanges, and times. On a link alone a step takes what it sends over the rate,
# where each exchange is waited for at once.
for mesh in dp=2 dp=4 fsdp=2,tp=2; do
    plan --mesh $mesh --format json
    sent=$(number bytes_sent)
    plan --mesh $mesh --machine gbps=0.008 --set plan.disable=schedule
    says out 'order of exchanges: all '
    step=$(sed -n 's/^a step on gbps=0.008: \([^ ]*\) s, of which a rank waits at most .* s .*/\1/p' out)
    exposed=$(sed -n 's/.* waits at most \([^ ]*\) s .*/\1/p' out)
    [ -n "$step" ] && [ "$step" = "$exposed" ] || fail "work takes no time here: $step, $exposed"
    holds "$step > 0.999e-6 * $sent && $step < 1.001e-6 * $sent"
    # Beside one another they take the one link of a rank all the same.
    plan --mesh $mesh --machine gbps=0.008
    step=$(sed -n 's/^a step on gbps=0.008: \([^ ]*\) s, .*/\1/p' out)
    holds "$step > 0.999e-6 * $sent && $step < 1.001e-6 * $sent"
done
plan --mesh dp=2 --machine tflops=1e-3,gbytes_s=1
step=$(sed -n 's/^a step on .*: \([^ ]*\) s, of which a rank waits at most 0 s .*/\1/p' out)
holds "$step > 0"
run 2 plan "$LLAMA" --machine gbps=0
says err 'holds no number above 0'
run 2 plan "$LLAMA" --machine speed=3
says err 'is none of tflops=N'

# Rows that no number of ranks divides: the stages are cut at the same modules on all ranks (seed 136 of scripts/fuzz-plans).
run 0 plan "$LLAMA" --mesh pp=2,ep=5 --rank 7 --set dim=48 --set heads=6 --set seq=7 --set layers=3 --set batch=24 --set kv_heads=1 \
    --set ffn=24 --set plan.schedule=zero-bubble
says out 'all 10 ranks come to the end of a step, on paper'

# So where parts of three kinds are uneven, and within loops over micro-batches.
run 0 plan "$ROOT/examples/moe.lua" --mesh pp=3,fsdp=2,cp=3 --rank 8 --set dim=48 --set heads=6 --set seq=7 --set layers=2 --set batch=7 \
    --set kv_heads=6 --set ffn=17 --set experts=4 --set plan.schedule=gpipe --set plan.zero=1
says out 'all 18 ranks come to the end of a step, on paper'

# What a plan says of parameters and modules that are not there, or have no such dimension, is refused by its own name.
make_text 20000 text
cat >fields.lua <<'END'
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { case = 1 }
local layers = nn.stack(2, function() return nn.layer_norm(8) end)
local embed, head = nn.embedding(256, 8), nn.linear(8, 256)
local model = nn.module("m", { embed = embed, layers = layers, head = head }, function(t) return head(layers(embed(t))) end)
local plans = {
  { params = { ["hed.weight"] = { tp = 0 } } }, { params = { ["layers.*"] = { tp = 1 } } },
  { activations = { ["layers.*"] = { tp = 7 } } }, { activations = { ["layers.*"] = { tp = 1 } } },
  { schedule = "1f1b" }, { compress = "int8" }, { compress = "none" }, { zero = 1 }, {},
}
return sgl.job { model = model, loss = function(b) return nn.cross_entropy(model(b.tokens), b.targets) end,
  data = sgl.data.text { path = "text", seq = 16, batch = 4 }, optim = sgl.optim.adamw { lr = 1e-3 }, steps = 4,
  plan = sgl.plan(plans[cfg.case]) }
END
refused 1 "fields.lua:14: plan: params: 'hed.weight' names no parameter; did you mean 'head.weight'?" -- plan fields.lua --mesh tp=2
refused 1 "fields.lua:14: plan: params['layers.*']: dimension 1 of parameter 'layers.0." "' {8} over tp=2, and it has 1" -- plan fields.lua --mesh tp=2 --set case=2
refused 1 "plan: activations: 'layers.*' splits dimension 7 over tp=2, and what these modules give others has 3" -- plan fields.lua --mesh tp=2 --set case=3
run 0 plan fields.lua --mesh tp=2 --set case=4
[ ! -s err ] || fail "it warns of what has an effect"

# warns CASE TEXT OPTION...: what the mesh makes nothing of is told, once; nothing where TEXT is empty.
warns() {
    run 0 plan fields.lua --set case="$1" $3
    [ "$(grep -c '^sgl: warning' err || true)" -eq "$([ -n "$2" ] && echo 1 || echo 0)" ] || fail "case $1, $3: warnings"
    [ -z "$2" ] || says err "$2"
}
warns 5 'schedule = "1f1b"' '--mesh tp=2'
warns 5 '' ''
warns 6 'compress is of what ranks along dp and fsdp exchange' '--mesh tp=2'
warns 6 '' '--mesh dp=2'
warns 7 '' '--mesh tp=2'
warns 8 'zero = 1' '--mesh dp=2'

# Nobody is warned again of what a checkpoint keeps, but of what is said anew.
run 0 train fields.lua --set case=9 --set plan.zero=1 --set plan.schedule=1f1b --set plan.compress=int8 --stop-at 1 --out kept --quiet
run 0 generate kept --prompt a --tokens 1
[ ! -s err ] || fail "generate warns"
run 0 generate kept --prompt a --tokens 1 --set plan.bucket=1MiB
refused 1 "there is no field 'buckte'; did you mean 'bucket'" -- generate kept --prompt a --tokens 1 --set plan.buckte=1MiB
for command in 'generate kept --prompt a --mesh dp=2' 'train fields.lua --resume kept --mesh dp=2' 'train fields.lua --resume kept --mesh tp=2'; do
    run 1 $command
    [ "$(wc -l <err)" -eq 1 ] || fail "$command: warnings"
    says err '2'
done
run 1 train fields.lua --resume kept --mesh dp=2 --set plan.zero=2
says err 'warning: fields.lua:14: plan: zero = 2'
run 0 train fields.lua --resume kept --stop-at 2 --quiet
tr , '\n' <kept/step-00000002/manifest.json >manifest
says manifest plan.zero
says_not manifest plan.kept
