#!/bin/sh
# `sgl generate` from the folder alone: the seed decides, temperature 0 is greedy and so is top-k 1, top-p and top-k narrow
# the choice, a prompt may be longer than the context, threads change nothing; models of tokens speak in numbers.
. "$ROOT/tests/e2e/common.sh"
make_text 20000 text
# shellcheck disable=SC2086
run 0 train "$LLAMA" $TINY --set dim=32 --set lr=1e-2 --data text --steps 200 --out trained --quiet

# says_text FILE OPTION...: what is generated.
generate() {
    file=$1
    shift
    run 0 generate trained "$@"
    mv out "$file"
    [ ! -s err ] || fail "it complained"
}

mkdir elsewhere
cp -r trained elsewhere/
rm text # neither data nor script are needed
generate a --prompt 'the old ' --tokens 60 --seed 3
generate b --prompt 'the old ' --tokens 60 --seed 3 --threads 2
same a b
[ "$(wc -c <a)" -eq $((8 + 60 + 1)) ] || fail "the prompt, 60 bytes and a line's end: $(wc -c <a)"
head -c 8 a | grep -q '^the old $' || fail "the prompt comes first"
generate b --prompt 'the old ' --tokens 60 --seed 4
differ a b
generate b --prompt 'the old ' --tokens 60
generate c --prompt 'the old ' --tokens 60 --seed 0 --temperature 0.8 --top-k 0 --top-p 1
same b c
(cd elsewhere && run 0 generate trained --prompt 'the old ' --tokens 60 --seed 3 && same out ../a)
run 0 generate trained/step-00000200 --prompt 'the old ' --tokens 60 --seed 3
same out a

generate greedy --prompt 'her brother ' --tokens 60 --temperature 0
for narrow in '--top-k 1' '--top-p 0.0001' '--temperature 0 --seed 9' '--temperature 0.0001'; do
    # shellcheck disable=SC2086
    generate b --prompt 'her brother ' --tokens 60 $narrow
    same greedy b
done
generate hot --prompt 'her brother ' --tokens 60 --temperature 2 --seed 1
generate narrowed --prompt 'her brother ' --tokens 60 --temperature 2 --seed 1 --top-k 3
differ hot narrowed
generate b --prompt 'her brother ' --tokens 60 --temperature 2 --seed 1 --top-p 0.5
differ hot b

# The context is 16: a prompt of 44 bytes is read in, its last half anew; more is made than fits. It learnt the text.
generate long --prompt 'the grey cat followed the long road.' --tokens 100 --temperature 0
[ "$(wc -c <long)" -eq $((36 + 100 + 1)) ] || fail "a prompt longer than the context"
tail -c 101 long | grep -Eq 'the|cat|road|lantern|king' || fail "nothing was learnt: $(cat long)"
generate none --prompt 'only this' --tokens 0
[ "$(cat none)" = 'only this' ] || fail "--tokens 0"
generate utf --prompt 'für 日本' --tokens 5
head -c 11 utf | grep -q 'für 日本' || fail "bytes of a prompt that is no ASCII"
generate ids --prompt-ids 116,104,101 --tokens 4 --temperature 0
head -n 1 ids | grep -Eq '^116 104 101( [0-9]+){4}$' || fail "tokens as numbers: $(cat ids)"

refused 1 'prompt is empty' -- generate trained --prompt ''
refused 1 'there is no checkpoint' 'elsewhere' -- generate elsewhere --prompt x
refused 1 'nowhere' 'no such folder' -- generate nowhere --prompt x
refused 1 '300' 'vocabulary of 256' -- generate trained --prompt-ids 1,300
refused 1 "'x'" '1,2,3' -- generate trained --prompt-ids 1,x
refused 1 'temperature' -- generate trained --prompt x --temperature -1
refused 1 'top_p' -- generate trained --prompt x --top-p 1.5
refused 2 'top-p' 'above 0' -- generate trained --prompt x --top-p 0

# A model of tokens that are no bytes.
lua5.4 "$ROOT/tests/e2e/damage.lua" u16 tokens.bin 3000
# shellcheck disable=SC2086
run 0 train "$GPT2" --set vocab=97 --set dim=16 --set layers=1 --set heads=2 --set seq=16 --set batch=4 --steps 5 --quiet \
    --data tokens.bin --out numbers
refused 1 '--prompt-ids' 'no bytes' -- generate numbers --prompt 'x'
run 0 generate numbers --prompt-ids 1,2,96 --tokens 40
[ "$(wc -w <out)" -eq 43 ] || fail "three tokens and forty"

# A script whose modules lie beside it: the checkpoint holds their texts.
mkdir beside
sed 's|^local function block()|local block = require "block"\nlocal function unused()|; s|cfg.layers, block,|cfg.layers, function() return block(cfg, nn) end,|' \
    "$LLAMA" >beside/llama.lua
cat >beside/block.lua <<'LUA'
return function(cfg, nn)
  local norm, mlp = nn.rms_norm(cfg.dim), nn.swiglu(cfg.dim, cfg.ffn)
  return nn.module("block", { norm = norm, mlp = mlp }, function(x) return x + mlp(norm(x)) end)
end
LUA
make_text 8000 text
# shellcheck disable=SC2086
run 0 train beside/llama.lua $TINY --data text --steps 3 --out modules --quiet
rm -r beside
run 0 generate modules --prompt 'the' --tokens 5
