#!/bin/sh
# `sgl graph`: the graph as traced and after every pass, as text and as dot, of every graph of both examples; two runs print
# the same; nodes carry the script's lines; --program shows kernels and places; disabled passes are left out.
. "$ROOT/tests/e2e/common.sh"

run 0 graph --help
passes=$(sed -n 's/^passes: *//p' out)
[ "$(echo $passes | wc -w)" -ge 8 ] || fail "the help lists the passes: $passes"

# printed NAME OPTION...: as text and as dot; the text twice.
printed() {
    name=$1
    shift
    run 0 graph "$@"
    mv out "$name.txt"
    head -n 1 "$name.txt" | grep -q '^graph "' && tail -n 1 "$name.txt" | grep -q '^}$' || fail "$name.txt is no graph"
    run 0 graph "$@"
    same out "$name.txt"
    run 0 graph "$@" --format dot
    mv out "$name.dot"
    grep -q '^digraph' "$name.dot" || fail "$name.dot is no graph"
    # nop reads a graph and draws nothing; dot would take minutes over the large ones.
    if command -v nop >/dev/null; then nop "$name.dot" >/dev/null 2>err || fail "graphviz does not read $name.dot"; fi
}

small='--set dim=16 --set layers=1 --set heads=2 --set kv_heads=1 --set ffn=32 --set seq=16 --set batch=4 --set micro=2'
# shellcheck disable=SC2086
printed traced "$LLAMA" $small
says traced.txt 'llama.lua":' 'scope "blocks.0.attn"' 'attention(' 'grad(' 'fetch "loss"' 'update "blocks.0.attn.wq"'
before=traced
for pass in $passes all; do
    # shellcheck disable=SC2086
    printed "$pass" "$LLAMA" $small --after "$pass"
    says "$pass.txt" 'fetch "loss"'
done
same all.txt memory.txt
says_not autodiff.txt ' grad('
says sections.txt 'member "blocks.0.attn.wq" of'
says fuse.txt 'fused('
says memory.txt 'in arena+' 'in state+' 'memory {'
says micro.txt 'scan('

for graph in init eval decode; do
    # shellcheck disable=SC2086
    printed "$graph" "$LLAMA" $small --graph $graph
    # shellcheck disable=SC2086
    printed "$graph.all" "$LLAMA" $small --graph $graph --after all
done
says eval.txt 'fetch "loss_sum"' 'fetch "count"'
says_not eval.txt 'update '
says decode.txt 'fetch "logits"' 'cache.k/blocks.0.attn'
gpt2='--set bytes=true --set dim=16 --set layers=1 --set heads=2 --set seq=16 --set batch=4'
# shellcheck disable=SC2086
printed gpt2 "$GPT2" $gpt2 --after all
says gpt2.txt 'fused(' 'attention' 'memory {'

if command -v dot >/dev/null; then
    dot -Tsvg eval.dot -o eval.svg 2>err || fail "dot does not draw eval.dot"
fi

# A comment in the script moves the lines and nothing else.
{ echo '-- a line'; cat "$LLAMA"; } >llama.lua
run 0 graph llama.lua --after simplify
sed -E 's/ @"[^"]*":[0-9]+//' out >moved
run 0 graph "$LLAMA" --after simplify
sed -E 's/ @"[^"]*":[0-9]+//' out >still
same moved still

# shellcheck disable=SC2086
run 0 graph "$LLAMA" $small --program
says out 'program "train"' 'instructions' 'fused kernel' '@arena+' '@state+' '; ' 'llama.lua:' 'feed "tokens"' 'fetch "loss"' \
    'state "adamw.m/blocks.0.attn.wq"'

# With a pass left out that may be; with the verifier after each; dumps in numbered files.
# shellcheck disable=SC2086
SGL_DISABLE=simplify,simplify-again "$SGL" graph "$LLAMA" $small --after all >out 2>err || fail "SGL_DISABLE"
differ out all.txt
# shellcheck disable=SC2086
SGL_VERIFY=1 SGL_DUMP=all SGL_DUMP_DIR=dump "$SGL" graph "$LLAMA" $small --after all >out 2>err || fail "SGL_DUMP=all"
[ "$(find dump -type f | wc -l)" -ge 10 ] || fail "there are no dumps"

# Of a rank of a mesh: which it is, what its values are parts of, who is in its groups; no two ranks say the same, all parse.
# shellcheck disable=SC2086
for rank in 0 3; do
    run 0 graph "$LLAMA" $small --set batch=6 --set micro=1 --mesh dp=2,tp=2 --after shard --rank $rank
    mv out "rank.$rank"
done
says rank.3 '# rank 3 of 4: dp 1 of 2, tp 1 of 2; stage 0 of 1; replica 1 of 2' 'i32[3,16]{dp:0} of [6,16] from [3,0]' \
    '# group tp: ranks 2,3; place 1 of 2' '# group dp: ranks 1,3; place 1 of 2' '# group dp+tp: ranks 0,1,2,3; place 3 of 4'
says rank.0 '# rank 0 of 4: dp 0 of 2, tp 0 of 2; stage 0 of 1; replica 0 of 2' 'i32[3,16]{dp:0} of [6,16] from [0,0]'
sed 's/ from \[[0-9,]*\]//g; s/ # .*//' rank.0 >plain.0
sed 's/ from \[[0-9,]*\]//g; s/ # .*//' rank.3 >plain.3
same plain.0 plain.3
