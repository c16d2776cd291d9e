#!/bin/sh
# A run of the example, whole: the loss falls, the log and the plain lines say what they must, evaluation, the checkpoint
# and the last lines are there, --quiet is quiet, what the script logs is shown.
. "$ROOT/tests/e2e/common.sh"
make_text 20000 text

# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 100 --eval-every 40 --out run --log log
lua5.4 "$ROOT/tests/e2e/log.lua" check log step loss lr grad_norm tokens tokens_per_s step_ms ||
    fail "the log is not as it must be"
first=$(log loss log 1)
last=$(log loss log 100)
holds "$first > 5.0 && $first < 6.5"  # ln 256 = 5.55: nothing is learnt yet
holds "$last < 0.6 * $first"
holds "$(log eval_loss log 100) < $(log eval_loss log 40)"
holds "$(log lr log 1) < $(log lr log 5) && $(log lr log 5) > $(log lr log 100)"  # warm-up, then cosine
holds "$(log tokens log 100) == 100 * 4 * 16"
[ "$(grep -c eval_loss log)" -eq 3 ] || fail "evaluations at 40, 80 and the end"

says out 'step 1/100' 'step 100/100' ' loss ' ' lr ' ' norm ' ' tok/s' ' mfu ' ' MiB' ' left ' 'held-out loss' \
    'saved run/step-00000100' 'a byte model of order 2' 'of order 3' 'checkpoints in run'
says_not out "$(printf '\r')" "$(printf '\033')"  # piped: lines, no bar
[ ! -s err ] || fail "it complained"
[ -f run/step-00000100/parameters.safetensors ] || fail "there is no checkpoint"

# Quiet, and without --out: the folder is named after the script.
run 0 train "$LLAMA" $TINY --data text --steps 3 --quiet
[ ! -s out ] && [ ! -s err ] || fail "--quiet printed something"
[ -d llama.run/step-00000003 ] || fail "llama.run holds no checkpoint"

# The kernels by their time: after so many steps, or at the end of a shorter run; the numbers of the run stay the same.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 6 --out measured --log measured.log --profile 3 --quiet
says out '3 steps' 'share' 'launches' 'GFLOP/s' 'GB/s' 'attention' 'fused kernel ' 'llama.lua:'
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 6 --out unmeasured --log unmeasured.log --quiet
steps_of measured.log >a
steps_of unmeasured.log >b
same a b
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 2 --out measured2 --profile
says out 'share' 'step 2/2'
[ "$(grep -c 'profile of program' out)" -eq 1 ] || fail "the table is there twice"
# A run of one step has none that is measured, and says so.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --data text --steps 1 --out measured3 --profile --machine tflops=1,gbytes_s=10
says out 'no step was measured'

# Numbers that the script adds stand in the log and on the lines; what it prints goes to stderr.
sed 's|loss = function(batch) return .*|loss = function(batch)\
    local loss, count = nn.cross_entropy(model(batch.tokens), batch.targets)\
    sgl.log("perplexity", loss:exp())\
    return loss, count\
  end,|; 1a print("a line of the script")' "$LLAMA" >logged.lua
run 0 train logged.lua $TINY --data text --steps 4 --out logged --log logged.log
says out ' perplexity '
says err 'a line of the script'
holds "$(log perplexity logged.log 4) / exp($(log loss logged.log 4)) < 1.0001"
holds "$(log perplexity logged.log 4) / exp($(log loss logged.log 4)) > 0.9999"

# shellcheck disable=SC2086
SGL_LOG=warning "$SGL" train logged.lua $TINY --data text --steps 1 --out logged2 >out 2>err || fail "SGL_LOG=warning"
[ ! -s err ] || fail "SGL_LOG=warning lets print through"
SGL_LOG=loud "$SGL" doctor >out 2>err || fail "SGL_LOG=loud"
says err "'loud'" 'warning, info'

# What is no number is shown and logged as such; and a byte outside of the model's vocabulary is met when it is read.
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --set lr=1e30 --data text --steps 4 --out nan --log nan.log
says out ' loss nan'
says nan.log '"loss":"nan"'
# shellcheck disable=SC2086
run 1 train "$LLAMA" $TINY --set vocab=100 --data text --steps 4 --out vocab
says err 'text: offset ' 'is outside the vocabulary of 100'

# The other example, on bytes; fp64; the null device plans and computes nothing.
run 0 train "$GPT2" $TINY_GPT2 --set lr=3e-3 --data text --steps 60 --out gpt2 --log gpt2.log
holds "$(log loss gpt2.log 60) < 0.8 * $(log loss gpt2.log 1)"
run 0 train "$LLAMA" $TINY --set plan.precision=fp64 --data text --steps 10 --out fp64 --log fp64.log
difference="$(log loss fp64.log 10) - $(log loss log 10)"
run 0 train "$LLAMA" $TINY --data text --steps 10 --out fp32 --log fp32.log
difference="($(log loss fp64.log 10) - $(log loss fp32.log 10))"
holds "$difference < 1e-3 && $difference > -1e-3 && $difference != 0"
run 0 train "$LLAMA" $TINY --data text --steps 2 --out null --device null
