#!/bin/sh
# The README as it stands: its model trains, and every message that it quotes is one that the command prints.
. "$ROOT/tests/e2e/common.sh"
make_text 40000 book.txt
sed -n '/^```lua/,/^```/{/^```/!p}' "$ROOT/README.md" >model.lua
[ "$(wc -l <model.lua)" -le 12 ] || fail "the model of ten lines has $(wc -l <model.lua)"
run 0 train model.lua --steps 2 --set seq=32 --set batch=4 --log log
[ -d model.run/step-00000002 ] || fail "it is not saved"
run 0 generate model.run --prompt 'the old' --tokens 3

# A swiglu of another width, in the example: the line and the shapes that the README tells.
grep -o 'llama.lua:[0-9]*: [^`]*' "$ROOT/README.md" >quoted
[ "$(wc -l <quoted)" -eq 1 ] || fail "the README quotes $(wc -l <quoted) messages, this test knows one"
sed 's/nn.swiglu(cfg.dim, cfg.ffn/nn.swiglu(96, cfg.ffn/' "$LLAMA" >llama.lua
refused 1 "sgl: $(cat quoted)" -- train llama.lua --data book.txt

# What it says of flags and of commands is there.
run 0 train "$LLAMA" --data book.txt --set layers=6 --set plan.micro=4 --steps 1 --set dim=16 --set ffn=16 --set seq=16 \
    --out flags --quiet
for command in $(grep -o '`sgl [a-z]*' "$ROOT/README.md" | sed 's/.* //' | sort -u); do run 0 "$command" --help; done
for path in $(grep -o '`[a-z][a-z/_.]*/[a-z_./]*`' "$ROOT/README.md" | tr -d '`'); do
    [ -e "$ROOT/$path" ] || [ "${path#build/}" != "$path" ] || fail "the README names $path, which is not there"
done
