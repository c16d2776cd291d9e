#!/bin/sh
# Adapters of low rank: the base run's parameters come by --init-from, the first step computes what the base computes,
# training lowers the loss and leaves every bit of the base as it was; only the adapters have moments. Resumed bit for bit,
# evaluated and generated with from the folder alone.
. "$ROOT/tests/e2e/common.sh"
make_text 20000 text.txt
tr 'aeiou' 'uoaei' <text.txt >other.txt
LORA="$ROOT/examples/lora.lua"
ADAPT="$TINY --set lr=0.01 --data other.txt --init-from base --steps 60 --set match=blocks.*"
run 0 train "$LLAMA" $TINY --data text.txt --set lr=0.01 --steps 500 --out base --quiet

# The base on the other text, one step: its first loss is that of the adapted model.
run 0 train "$LLAMA" $TINY --data other.txt --init-from base --steps 1 --out again --log again.log --quiet
run 0 train "$LORA" $ADAPT --out whole --log whole.log --quiet
[ "$(log loss whole.log 1)" = "$(log loss again.log 1)" ] || fail "the first step is not the base's"
holds "$(log loss whole.log 60) < 0.5 * $(log loss whole.log 1)"
run 0 train "$LORA" $ADAPT --out half --log half.log --stop-at 17 --quiet
run 0 train "$LORA" --resume half --log half.log --quiet
steps_of whole.log >a
steps_of half.log >b
same a b

# Every bit of the base is as it was; the adapters are kept beside it.
cat >tensors.lua <<'LUA'
-- Prints name and bytes of every tensor of a safetensors file, by name.
local file = assert(io.open(arg[1], "rb")):read "a"
local length = string.unpack("<I8", file)
local lines = {}
for name, from, to in file:sub(9, 8 + length):gmatch '"([^"]+)":{[^{}]-"data_offsets":%[(%d+),(%d+)%]' do
  local bytes = file:sub(9 + length + from, 8 + length + to)
  lines[#lines + 1] = name .. " " .. bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
end
table.sort(lines)
print(table.concat(lines, "\n"))
LUA
lua5.4 tensors.lua base/step-00000500/parameters.safetensors >a
lua5.4 tensors.lua whole/step-00000060/parameters.safetensors >b
[ "$(wc -l <a)" -eq 20 ] || fail "the base has not 20 parameters"
same a b
lua5.4 tensors.lua whole/step-00000060/states.safetensors >b
[ "$(grep -c '^blocks.*lora_[ab] ' b)" -eq 28 ] || fail "the adapters are not in the checkpoint"

# Only the adapters have gradients and moments.
run 0 graph "$LORA" $TINY --program
says out 'state "adamw.m/blocks.0.attn.wq.lora_a" f32[8,16]' 'state "adamw.v/blocks.1.attn.wo.lora_b" f32[16,8]'
says_not out 'adamw.m/embed' '.wq" f32[16,16]@arena' 'lora_a.lora' 'ffn.gate.lora'
[ "$(grep -c 'state "adamw' out)" -eq 32 ] || fail "not 2 moments of 2 factors of 4 weights of 2 blocks"

# total SCRIPT: the bytes that its train program needs.
total() {
    run 0 memory "$1" --set text=text.txt --set batch=4 --set seq=32
    awk '/^total/ { gsub(",", "", $2); print $2 }' out
}
holds "$(total "$LORA") < 0.7 * $(total "$LLAMA")"

# From the folder alone.
run 0 eval whole --json
run 0 generate whole --prompt 'the ' --tokens 20 --temperature 0
mv out adapted.txt
run 0 generate base --prompt 'the ' --tokens 20 --temperature 0
differ adapted.txt out

bad() {
    sed "s|^sgl.lora.*|sgl.lora(model, $1)|" "$LORA" >bad.lua
    shift
    refused 1 bad.lua:18: "$@" -- train bad.lua $TINY --data text.txt --out nothing
}
bad '{ rank = 99, match = "*" }' "lora: rank (99) is above the smaller extent of 'embed.weight' {256, 16}"
bad '{ rank = 2, match = "*.attn.*", also = "*.norm9" }' "lora: also: no parameter's path matches '*.norm9'"
bad '{ rank = 2, match = "*norm*" }' 'lora: nothing that match names has two dimensions'
bad '{ match = "*" }' 'lora: rank must be an integer'
bad '{ rank = 2, match = {} }' 'lora: nothing that match names'
bad '{ rank = 2, match = "*" }) sgl.lora(model, { rank = 2, match = "*" }' 'has an adapter already'

# A plan that splits parameters splits adapters: a pattern may name these alone.
if command -v mpirun >/dev/null && "$SGL" doctor | grep -q 'libsgl_mpi.so$'; then
    export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold
    # shellcheck disable=SC2086
    run 0 train "$LORA" $TINY --data text.txt --out parted --steps 2 --nproc 2 --mesh fsdp=2
fi
