#!/bin/sh
# Gradients exchanged in fewer bytes: what a plan says it sends and keeps; losses after 500 steps beside those of the run that is not
# compressed, over four seeds; a run that is resumed ends in the same bytes, and goes on on one rank and over another mesh; refusals.
# ctest: serial
# ctest: timeout 600
. "$ROOT/tests/e2e/common.sh"
make_text 60000 text

# The whole sends 2 (n - 1) / n of 4 bytes an element, bf16 half of that, int8 in blocks of 16 (1 + 4 / 16) / 4.
sent() { awk '$2 == "over" && $1 != "all_reduce" { gsub(",", ""); sum += $NF } END { print sum + 0 }' out; }
# shellcheck disable=SC2086
run 0 plan "$LLAMA" $TINY --mesh dp=2
whole=$(awk '$1 == "all_reduce" { gsub(",", ""); if ($NF > sum) sum = $NF } END { print sum }' out)
for codec in bf16:0.5:1 int8:0.3125:2; do
    many=${codec##*:} codec=${codec%:*}
    # shellcheck disable=SC2086
    run 0 plan "$LLAMA" $TINY --mesh dp=2 --set plan.compress="${codec%:*}"
    says out '~residual/embed.weight' '~residual/norm.weight' 'all_to_all'
    awk -v sent="$(sent)" -v whole="$whole" -v ratio="${codec#*:}" \
        'BEGIN { d = sent / whole / ratio; exit !(d > 0.9 && d < 1.1) }' || fail "$codec: $(sent) bytes of $whole"
    # What goes is turned, and what comes back gathered, for all gradients together, of each kind of code.
    for exchange in all_to_all all_gather; do
        grep -q "$exchange.* $many times" out && [ "$(grep -c $exchange out)" -eq 1 ] || fail "$codec: $exchange is not merged"
    done
done

# Of what tp splits too, each half is one exchange over dp: nothing is gathered over tp to be cut elsewhere.
run 0 plan "$ROOT/examples/gpt2.lua" --set bytes=true --set layers=2 --set dim=64 --set heads=4 --mesh dp=2,tp=2 --set plan.compress=int8
grep -q 'all_to_all_each *over dp .* 2 times' out && grep -q 'all_gather_each *over dp .* 2 times' out &&
    [ "$(grep -c 'all_gather\|all_to_all' out)" -eq 2 ] || fail "gradients that tp splits are exchanged otherwise"
# Sums over other axes are paid together before.
run 0 plan "$LLAMA" --mesh dp=2,cp=2 --set plan.compress=int8
grep -q 'all_reduce *over cp .* 1 times' out || fail "sums over cp are not merged"

run 1 plan "$LLAMA" --mesh dp=2 --set plan.compress=int7
says err "plan: compress: there is no codec 'int7' for '*'; did you mean 'int8'?"
refused() {
    sed "s/mesh = { dp = 1 }/mesh = { dp = 2 }, compress = $1/" "$LLAMA" >one.lua
    run 1 plan one.lua
    says err "$2"
}
refused '{ ["*.wieght"] = "int8" }' "plan: compress: '*.wieght' names no parameter"
refused '{ ["*"] = 8 }' "plan: compress['*'] must be a codec such as \"int8\", not '8'"
refused '{ "int8" }' "plan: compress: its keys are patterns of names"
refused '8' "plan: compress must be a table by patterns"

if ! command -v mpirun >/dev/null || ! "$SGL" doctor | grep -q 'libsgl_mpi.so$'; then
    echo "no mpirun, or no module libsgl_mpi.so: nothing of several ranks is tested" >&2
    exit 0
fi
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold

# train RUN ARGUMENT...
train() {
    name=$1
    shift
    # shellcheck disable=SC2086
    run 0 train "$LLAMA" $TINY --data text --out "$name" --log "$name.log" --quiet --seed "$seed" "$@"
}
loss() { sed -n 's/.*"eval_loss":\([^,]*\),.*/\1/p' "$1.log" | tail -n 1; }

# Four seeds: a single one says little of so small a model, whose loss after 500 steps differs by a third from seed to seed. Measured
# over eight: bf16 +0.03% on the mean and 0.1% at most, int8 -0.2% and 0.7%.
slow=$SGL
[ ! -x "$RELEASE" ] || SGL=$RELEASE
for seed in 1 2 3 4; do
    for codec in none bf16 int8; do
        train "$codec.$seed" --steps 500 --nproc 2 --mesh dp=2 --set plan.compress="$codec"
        echo "$codec $(loss "$codec.$seed")"
    done
done >losses
SGL=$slow
awk '$1 == "none" { whole = $2; next } { d = $2 / whole - 1; sum[$1] += d / 4; if (d * d > 0.02 ^ 2 || d == 0) bad = 1 }
    END { for (codec in sum) if (sum[codec] ^ 2 > 0.005 ^ 2) bad = 1; exit bad }' losses || {
    cat losses
    fail "the loss after 500 steps is further than 2%, or on the mean of four seeds than 0.5%, from that of the run that is not compressed"
}

seed=1
train straight --steps 10 --nproc 2 --mesh dp=2 --set plan.compress=int8
train halves --steps 10 --stop-at 5 --nproc 2 --mesh dp=2 --set plan.compress=int8
cp -r halves one
cp -r halves three
train halves --steps 10 --nproc 2 --mesh dp=2 --set plan.compress=int8 --resume halves
for file in parameters.safetensors states.safetensors states.rank-00001.safetensors; do
    cmp "straight/step-00000010/$file" "halves/step-00000010/$file" || fail "resumed, $file has other bytes"
done
train one --steps 10 --set plan.compress=int8 --resume one
train three --steps 10 --nproc 3 --mesh fsdp=3 --set plan.compress=int8 --resume three
