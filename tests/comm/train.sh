#!/bin/sh
# train.sh -- training over ranks under mpirun: the same losses and checkpoints as one rank, also where the batch is cut
# unevenly; a rank that is killed, stops, or learns something else; a job that is asked to stop. What went wrong is told once, nothing
# half is saved, no process is left.
# ctest: serial
# ctest: timeout 600
. "$ROOT/tests/comm/common.sh"
own="$SCRATCH/sgl"
cp "$SGL" "$own"
export SGL_MODULES="$(dirname "$SGL")"
host=$(uname -n)
as_root=
[ "$(id -u)" -ne 0 ] || as_root=--allow-run-as-root

awk 'BEGIN { for (i = 0; i < 3000; i++) printf "%s", substr("the quick brown fox jumps over it. ", i * 7 % 30 + 1, 5) }' >text
cat >gpt.lua <<'END'
local sgl = require "sgl"
local cfg = sgl.config { batch = 4, steps = 12, other = false }
local model = sgl.models.llama { vocab = 256, dim = 16, layers = 1, heads = 2, kv_heads = 1, ffn = 24 }
return sgl.job { model = model, steps = cfg.steps, eval_every = 5, save_every = 5,
  loss = function(b) return sgl.nn.cross_entropy(model(b.tokens), b.targets) end,
  data = sgl.data.text { path = "text", seq = 16, batch = cfg.batch, held_out = 0.1 },
  optim = sgl.optim.adamw { lr = cfg.other and 2e-2 or 1e-2, clip = 1, weight_decay = 0.1 } }
END

# train CODE RANKS ARGUMENT...: a run that must end with this status; `any`: with one that is not 0.
train() {
    wanted=$1 number=$2
    shift 2
    status=0
    timeout -k 5 120 "$own" train gpt.lua --nproc "$number" --mesh "dp=$number" "$@" >out 2>err </dev/null || status=$?
    settle "$wanted" "$number ranks, $*"
}
settle() {
    case $1 in
    any) [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && [ "$status" -ne 137 ] || fail "$2: status $status" ;;
    *) [ "$status" -eq "$1" ] || fail "$2: status $status, not $1" ;;
    esac
    nobody_left "$2"
}

losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
near() {
    losses "$1" >a && losses "$2" >b
    [ "$(wc -l <a)" -ge 12 ] || fail "$1 has no twelve steps"
    paste a b | awk '{ d = $2 - $4; if ($1 != $3 || d > 1e-4 || d < -1e-4) exit 1 }' || fail "$1 and $2 differ"
}
saved() { ls "$1" 2>/dev/null | grep '^step-' | tr '\n' ' '; }

# The same curve, and a checkpoint that any number of ranks goes on with.
"$own" train gpt.lua --out one --log one.jsonl >/dev/null 2>err || fail "one rank"
for number in 2 3; do
    train 0 $number --out "of$number" --log "of$number.jsonl"
    near one.jsonl "of$number.jsonl"
    [ "$(saved "of$number")" = "$(saved one)" ] || fail "checkpoints: $(saved "of$number")"
done
train 0 2 --out on --stop-at 6 --log on.jsonl
train 0 3 --out on --resume --log on.jsonl
near one.jsonl on.jsonl

# One rank has another script in hand.
status=0
# shellcheck disable=SC2086
timeout -k 5 60 mpirun -q $as_root --oversubscribe --bind-to none \
    -n 1 "$own" train gpt.lua --mesh dp=2 --out differ : -n 1 "$own" train gpt.lua --mesh dp=2 --out differ --set other=true \
    >out 2>err </dev/null || status=$?
settle any "a rank with another script"
says "of rank 0 on $host and of rank 1 on $host: the script has made other graphs there"
[ -z "$(saved differ)" ] || fail "a run that did not begin has saved $(saved differ)"

# One rank's batches are other ones, from the third step on, though its graph is the same.
cat >batches.lua <<'END'
local sgl = require "sgl"
local cfg = sgl.config { more = 0 }
local model = sgl.nn.linear(4, 2)
local function rows(n)
  local x = {}
  for i = 1, 24 do x[i] = (7 * n + i) % 5 + (n >= 2 and i == 24 and cfg.more or 0) end
  return { x = x }
end
return sgl.job {
  model = model,
  loss = function(batch) return sgl.mean(sgl.square(model(batch.x))) end,
  data = sgl.data.batches { feeds = { x = { dtype = "f32", dims = { 6, 4 } } }, next = rows },
  optim = sgl.optim.sgd { lr = 0.01 },
}
END
alike() { # the second rank's setting
    status=0
    # shellcheck disable=SC2086
    timeout -k 5 60 mpirun -q $as_root --oversubscribe --bind-to none \
        -n 1 "$own" train batches.lua --mesh dp=2 --steps 4 --out "batches$1" : \
        -n 1 "$own" train batches.lua --mesh dp=2 --steps 4 --out "batches$1" --set more="$1" >out 2>err </dev/null || status=$?
}
alike 1
settle any "a rank with other batches"
says "the batch of rank 0 ($host) and that of rank 1 ($host) are not the same"
alike 0
settle 0 "two ranks with the same batches"

# rank R: its process, once it trains.
rank() {
    for process in $(pgrep -f "$own train"); do
        tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$process" && return
    done
    return 1
}
long() {
    out=$1
    shift
    timeout -k 5 120 "$own" train gpt.lua --nproc 3 --mesh dp=3 --steps 1000000 --set steps=1000000 --out "$out" "$@" >out 2>err </dev/null &
    launcher=$!
    for _ in $(seq 1 600); do
        [ -d "$out/step-00000005" ] && return 0
        sleep 0.05
    done
    fail "$out: no step 5"
}
ended() {
    status=0
    wait "$launcher" || status=$?
    settle "$1" "$out"
}
# Saved is what was due, every fifth step, and whole; not the last step that came to an end.
only_due() {
    for step in $(saved "$1"); do
        case $step in *[05]) ;; *) fail "$1 has $step" ;; esac
    done
    "$own" generate "$1" --prompt the --tokens 2 >/dev/null 2>err || fail "$1: its checkpoint is damaged"
}

long killed
kill -9 "$(rank 2)"
ended 137 # of the rank, by the launcher
says "rank 2 on $host has ended"
[ "$(wc -l <err)" -eq 1 ] || fail "something else is told beside that"
only_due killed

long stopped --timeout 2
kill -STOP "$(rank 1)"
ended any
says "rank 1 on $host: last seen " "(timeout 2 s)" "step "
only_due stopped

# Ctrl-C at the launcher: all stop after one step, with a checkpoint of it.
long asked
kill -INT "$launcher"
ended any
grep -q 'interrupted after step [0-9]' out || fail "it was not interrupted between steps"
step=$(sed -n 's/^interrupted after step \([0-9]*\).*/\1/p' out)
[ "$(saved asked | tr ' ' '\n' | tail -n 1)" = "$(printf 'step-%08d' "$step")" ] || fail "step $step is not saved: $(saved asked)"
