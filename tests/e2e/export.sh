#!/bin/sh
# `sgl export`: a checkpoint's parameters as one file, the same bits; adapters merged, so that the model without them computes
# what the adapted one did; averages on request. Nothing is left of a file that could not be written.
. "$ROOT/tests/e2e/common.sh"
make_text 20000 text.txt
tr 'aeiou' 'uoaei' <text.txt >other.txt
run 0 train "$LLAMA" $TINY --data text.txt --set lr=0.01 --steps 200 --out base --quiet
cat >tensors.lua <<'LUA'
-- Prints name, dtype, shape and bytes of every tensor of a safetensors file, by name.
local file = assert(io.open(arg[1], "rb")):read "a"
local length = string.unpack("<I8", file)
local lines = {}
for name, type, from, to in file:sub(9, 8 + length):gmatch '"([^"]+)":({[^{}]-)"data_offsets":%[(%d+),(%d+)%]' do
  local bytes = file:sub(9 + length + from, 8 + length + to)
  lines[#lines + 1] = name .. " " .. type .. " " .. bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
end
table.sort(lines)
print(table.concat(lines, "\n"))
LUA
run 0 export base --out base.safetensors
says out 'wrote base.safetensors from base/step-00000200'
lua5.4 tensors.lua base/step-00000200/parameters.safetensors >a
lua5.4 tensors.lua base.safetensors >b
[ "$(wc -l <b)" -eq 20 ] || fail "the model has 20 parameters"
same a b

# Adapters: the model without them, from the file, has the held-out loss of the adapted one.
cat >adapted.lua <<LUA
local sgl = require "sgl"
local model = sgl.models.llama { vocab = 256, dim = 16, layers = 2, heads = 2, kv_heads = 1, ffn = 32 }
sgl.lora(model, { rank = 4, alpha = 8, match = { "blocks.*", "embed.weight" }, also = "*norm*" })
return sgl.job {
  model = model, loss = function(batch) return sgl.nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.text { path = "other.txt", seq = 16, batch = 4 },
  optim = sgl.optim.adamw { lr = 1e-2, ema = 0.9 }, steps = 60,
}
LUA
run 0 train adapted.lua --init-from base --out adapted --quiet
run 0 export adapted --out merged.safetensors
lua5.4 tensors.lua merged.safetensors | sed 's/ .*//' >b
lua5.4 tensors.lua base.safetensors | sed 's/ .*//' >a
same a b
run 0 export adapted/step-00000060 --out averaged.safetensors --ema
differ merged.safetensors averaged.safetensors

# held_out ARGUMENT...: the loss that sgl eval tells.
held_out() {
    run 0 eval "$@" --json
    sed 's/.*"eval_loss":\([^,]*\).*/\1/' out
}
for kind in merged averaged; do
    run 0 train "$LLAMA" $TINY --data other.txt --set lr=0 --steps 1 --init-from $kind.safetensors --out from_$kind --quiet
done
# Where it lies changes nothing, also beside checkpoints.
cp merged.safetensors base/
cp merged.safetensors adapted/step-00000060/merged.safetensors
for place in base adapted/step-00000060; do
    rm -rf again
    run 0 train "$LLAMA" $TINY --data other.txt --set lr=0 --steps 1 --init-from $place/merged.safetensors --out again --quiet
    [ "$(held_out again)" = "$(held_out from_merged)" ] || fail "$place/merged.safetensors gives something else"
done
holds "($(held_out from_merged) - $(held_out adapted)) ^ 2 < 1e-10"
holds "($(held_out from_averaged) - $(held_out adapted --ema)) ^ 2 < 1e-10"
holds "($(held_out adapted) - $(held_out adapted --ema)) ^ 2 > 1e-6"
holds "$(held_out adapted) < $(held_out base --data other.txt) - 0.2"

# Buffers are in it.
run 0 train "$ROOT/examples/convnet.lua" --set width=8 --set stages=1 --set batch=8 --steps 2 --out images --quiet
run 0 export images --out images.safetensors
lua5.4 tensors.lua images/step-00000002/parameters.safetensors >a
lua5.4 tensors.lua images.safetensors >b
same a b
grep -q '^blocks.0.norm1.running_var ' b || fail "no running statistics"

# A file that does not fit changes nothing and says why.
for bad in 'images.safetensors|embed.weight is missing; the model has it' 'tensors.lua|tensors.lua: '; do
    refused 1 "${bad#*|}" -- train "$LLAMA" $TINY --data other.txt --init-from "${bad%|*}" --out bad --quiet
done
refused 1 'embed.weight is f32[256,16], the model has f32[256,32]' -- \
    train "$LLAMA" $TINY --set dim=32 --data other.txt --init-from merged.safetensors --out bad --quiet
refused 1 'blocks.1.' ' is in it, and the model has none' -- \
    train "$LLAMA" $TINY --set layers=1 --data other.txt --init-from merged.safetensors --out bad --quiet

refused 2 'give --out FILE' -- export base
refused 1 'nowhere' 'no such folder' -- export nowhere --out x
refused 1 'ema needs an optimizer that keeps averages' -- export base --out x --ema
refused 1 'cannot create' 'missing/x' -- export base --out missing/x
mkdir folder
refused 1 'folder' -- export base --out folder
[ -z "$(find . -name 'x' -o -name '*.tmp-*')" ] || fail "something is left"
