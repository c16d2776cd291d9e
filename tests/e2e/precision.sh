#!/bin/sh
# ctest: timeout 600
# bf16 and fp16 learn what fp32 learns; fp16 shows its scale, resumes bit for bit, and takes up a run of fp32; a run whose
# loss turns infinite ends with the parameter's name, and --trace-nan with the script's line.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text

# learn NAME OPTION...: a hundred steps.
learn() {
    name=$1
    shift
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" $TINY --data text --steps 100 --out "$name" --log "$name.log" --quiet "$@"
}
learn fp32
learn bf16 --set plan.precision=bf16
learn fp16 --set plan.precision=fp16
learn stream --set plan.precision=bf16 --set plan.stream=fp32
differ bf16/step-00000100/parameters.safetensors stream/step-00000100/parameters.safetensors
for kind in bf16 fp16 stream; do
    differ fp32/step-00000100/parameters.safetensors "$kind/step-00000100/parameters.safetensors"
    fell="($(log loss "$kind.log" 1) - $(log loss "$kind.log" 100))"
    holds "$fell > 0.97 * ($(log loss fp32.log 1) - $(log loss fp32.log 100))"
done
holds "$(log scale fp16.log 100) == 65536 && $(log skipped fp16.log 100) == 0"

# What is excepted by name stays f32, forward and back; of all modules together nothing is left that is narrow.
cat >named.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { default = "bf16", pattern = "second.*", value = "fp32" }
local first, second = nn.linear(4, 4), nn.linear(4, 4)
local model = nn.module("two", { first = first, second = second }, function(x) return second(first(x)) end)
return sgl.job {
  model = model, steps = 3, optim = sgl.optim.sgd { lr = 0.1 },
  loss = function(batch) return model(batch.x):square():mean() end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 1, 4 } } }, next = function() return { x = { 1, 2, 3, 4 } } end,
  },
  plan = sgl.plan { precision = { default = cfg.default, [cfg.pattern] = cfg.value } },
}
LUA
run 0 train named.lua --out named
run 0 graph named.lua --after precision
[ "$(grep -c 'linear(.*) : bf16\[1,4\].* scope "first"' out)" -eq 1 ] || fail "first is not narrow"
[ "$(grep -c 'linear(.*) : f32\[1,4\].* scope "second"' out)" -eq 1 ] || fail "second is not wide"
run 0 graph named.lua --set 'pattern=*' --after autodiff
says_not out 'bf16'
run 0 graph named.lua --set plan.precision=bf16 --set plan.wide=first.weight,second --after autodiff
says_not out 'bf16\['
refused 1 "'thrid.*' names no module and no parameter" -- train named.lua --set 'pattern=thrid.*' --out nothing
refused 1 "precision['second.*'] must be fp32, not 'fp16'" -- train named.lua --set value=fp16 --out nothing
refused 1 'precision.default must be bf16 or fp16' "'fp32'" -- train named.lua --set default=fp32 --out nothing

# The first scale is too large on purpose: some steps are skipped, within both halves the same ones.
large='--set plan.precision=fp16 --set plan.scale=1073741824 --set plan.scale_growth_interval=8 --set plan.max_skips=50'
# shellcheck disable=SC2086
learn whole $large
holds "$(log skipped whole.log 100) > 3 && $(log scale whole.log 100) < 1073741824"
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --set lr=1e-2 --data text --steps 12 $large --out few --keep 2 --save-every 3 --log few.log --quiet
[ "$(log skipped few.log 12)" -gt 3 ] || fail "no step was skipped"
says_not err 'gradient norm' 'cleared' # what a skipped step does not change is not lost
[ ! -d few/step-00000006 ] || fail "checkpoints are no more cleared away"
# shellcheck disable=SC2086
learn half $large --stop-at 43
run 0 train "$LLAMA" --out half --resume --log half.log --quiet
steps_of whole.log >a
steps_of half.log >b
same a b
same whole/step-00000100/states.safetensors half/step-00000100/states.safetensors

# Over stages of a pipeline, each of which unscales its own gradients and looks through them: the same steps are skipped.
if command -v mpirun >/dev/null && "$SGL" doctor | grep -q 'libsgl_mpi.so$'; then
    brief() { # NAME OPTION...: few steps, in two micro-batches each
        name=$1
        shift
        # shellcheck disable=SC2086
        run 0 train "$LLAMA" $TINY --data text --steps 24 $large --set plan.micro=2 --out "$name" --log "$name.log" --quiet "$@"
    }
    brief alone
    without_mpi=$ASAN_OPTIONS
    export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold
    brief staged --nproc 2 --mesh pp=2 --set plan.schedule=1f1b
    # One that is near the largest number may be skipped by one of them alone.
    apart="$(log skipped staged.log 24) - $(log skipped alone.log 24)"
    holds "$(log skipped staged.log 24) > 3 && $apart <= 1 && $apart >= -1"
    apart="$(log loss staged.log 24) - $(log loss alone.log 24)"
    holds "$apart < 0.05 && $apart > -0.05"
    export ASAN_OPTIONS="$without_mpi"
fi

# What was begun in fp32 goes on in fp16, with a scale of its own, and back.
run 0 train "$LLAMA" --out fp32 --resume --log fp32.log --steps 104 --set plan.precision=fp16
says err '~loss_scale.scale is not in it and begins as 65536'
run 0 train "$LLAMA" --out fp32 --resume --log fp32.log --steps 108 --set plan.precision=bf16
says err '~loss_scale.scale: the program has no such state'

# ---- what is not finite ----
cat >bad.lua <<'LUA'
local sgl = require "sgl"
local cfg = sgl.config { bad_at = 3, precision = "fp32" }
local head = sgl.nn.linear(3, 1)
local model = sgl.nn.module("model", { head = head }, function(x)
  return head(x)
end)
return sgl.job {
  model = model,
  loss = function(batch)
    local y = model(batch.x)
    local ratio = y / batch.scale
    return (ratio * ratio):sum()
  end,
  data = sgl.data.batches {
    feeds = { x = { dtype = "f32", dims = { 2, 3 } }, scale = { dtype = "f32", dims = { 2, 1 } } },
    next = function(cursor, is_eval)
      if is_eval and cursor > 0 then return nil end
      return { x = { 1, 2, 3, 4, 5, 6 }, scale = { 1, cursor + 1 >= cfg.bad_at and 0 or 1 } }
    end,
  },
  optim = sgl.optim.sgd { lr = 1e-6 },
  plan = sgl.plan { precision = cfg.precision, max_skips = 4 },
  steps = 30,
}
LUA
refused_with() {
    wanted=$1
    shift
    run "$wanted" train bad.lua --out "$@"
}
refused_with 1 bad.a --set precision=fp16
says err 'step 6: 4 steps in a row were skipped' 'in step 3, was that of head.weight' '--trace-nan'
refused_with 3 bad.b --trace-nan
says err 'bad.lua:11: ' 'div' 'gives f32[2,1] with 1 infinity of 2 numbers, the first at [1,0]; what went in: '
says out 'step 2/30'
says_not out 'step 3/30'
refused_with 3 bad.c --trace-nan --set precision=fp16
says err 'bad.lua:11: ' 'div'
run 0 train bad.lua --out bad.d --trace-nan --steps 2

# A loss that holds a gradient: the step's own is scaled, and an evaluation needs no scale.
cat >penalty.lua <<'LUA'
local sgl = require "sgl"
local model = sgl.models.mlp { inputs = 4, hidden = 8, layers = 1, classes = 1, activation = "silu" }
return sgl.job {
  model = model,
  loss = function(batch)
    local slope = sgl.grad(model(batch.x):sum(), batch.x)
    return model(batch.x):square():mean() + sgl.square(sgl.sqrt((slope * slope):sum(-1)) - 1):mean()
  end,
  data = sgl.data.batches { feeds = { x = { dtype = "f32", dims = { 2, 4 } } },
    next = function(cursor) return { x = { 1, 2, 3, 4, -1, 0, cursor % 3, 1 } } end },
  optim = sgl.optim.adamw { lr = 1e-3 }, plan = sgl.plan { precision = "fp16" }, steps = 3, eval_batches = 1,
}
LUA
run 0 train penalty.lua --out penalty
says out 'held-out loss'
[ ! -s err ] || fail "it complained"
