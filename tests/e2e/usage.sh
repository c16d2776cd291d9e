#!/bin/sh
# What is unknown is named together with the nearest right one: commands, options, keys, fields, ops, passes, files. Wrong
# usage ends with 2, all else with 1. Every command has --help; version and doctor say what they must.
. "$ROOT/tests/e2e/common.sh"

run 2
says out 'usage: sgl COMMAND' train profile eval generate export graph plan memory repl doctor version 'exit codes' 130
for ask in help --help -h; do
    run 0 $ask
    says out 'usage: sgl COMMAND'
done
for command in train profile eval generate export graph plan memory repl doctor version; do
    run 0 $command --help
    says out "usage: sgl $command" 'exit codes: 0 done; 1 failed' '2 wrong usage'
    run 0 help $command
    says out "usage: sgl $command"
    refused 2 "$command" "'--hlep' is no option" -- $command --hlep
done
run 0 train --help
says out --steps --stop-at --set --data --out --resume --init-from --save-every --keep --eval-every --log --device --threads \
    --seed --profile --timeline --machine --mesh --nproc --timeout --columns --quiet 'model-flops utilisation' 'products of one step' '130'
run 0 generate --help
says out --prompt --tokens --temperature --top-k --top-p --seed
run 0 graph --help
says out --after --format autodiff fuse memory

refused 2 "no command 'trian'" "'train'" -- trian
refused 2 "no command 'zzzzzzzzzz'" -- zzzzzzzzzz
refused 2 "'--step' is no option" "'--steps'" -- train "$LLAMA" --step 5
refused 2 "'--promt'" "'--prompt'" -- generate x --promt y
refused 2 "'many'" 'no integer' -- train "$LLAMA" --steps many
refused 2 "'-5'" 'negative' -- train "$LLAMA" --steps -5
refused 2 'needs a value' -- train "$LLAMA" --steps
refused 2 "'warm'" 'no number' -- generate x --prompt y --temperature warm
refused 2 'SCRIPT is missing' -- train
refused 2 'DIR is missing' -- generate --prompt x
refused 2 'one too many' -- train a.lua b.lua
refused 2 'key=value' -- train "$LLAMA" --set layers
refused 2 'flag' -- train "$LLAMA" --quiet=yes
refused 2 '--prompt' -- generate x
refused 2 '--program' 'neither --after nor --format' -- graph "$LLAMA" --program --format dot
refused 2 '--program' 'neither --after nor --format' -- graph "$LLAMA" --program --after fuse
refused 2 '--prompt TEXT' '--prompt-ids 1,2,3' -- generate x
refused 2 '--profile' "'few'" -- train "$LLAMA" --profile few
refused 2 '--profile' "'0'" -- train "$LLAMA" --profile=0
refused 2 '--timeline and --machine are of steps that are measured' -- train "$LLAMA" --timeline t.json
refused 2 "--format 'svg'" 'text and json' -- profile "$LLAMA" --format svg
refused 2 "'tflop=3' is none of tflops=N" -- profile "$LLAMA" --machine tflop=3

refused 1 "setting 'layer'" "'layers'" -- train "$LLAMA" --set layer=3
refused 1 'layers must be an integer' "'three'" "$LLAMA:" -- train "$LLAMA" --set layers=three
refused 1 "plan" "'micor'" "'micro'" -- train "$LLAMA" --set plan.micor=3
refused 1 "'stpes'" "'steps'" -- train "$LLAMA" --set job.stpes=3
refused 1 "no pass 'fues'" "'fuse'" -- graph "$LLAMA" --set plan.disable=fues --after all
refused 1 "'fuse' cannot be left out" -- graph "$LLAMA" --set plan.disable=simplify,fuse --after all
refused 1 'mesh dp=2' 'sgl train --nproc 2' -- train "$LLAMA" --data "$ROOT/vm/sgl.h" --set plan.mesh.dp=2
refused 1 'mesh' "'tq'" -- train "$LLAMA" --set plan.mesh.tq=2
refused 1 "no pass 'fues'" "'fuse'" -- graph "$LLAMA" --after fues
refused 1 "'dto'" 'text and dot' -- graph "$LLAMA" --format dto
refused 1 "'trani'" 'train' 'decode' -- graph "$LLAMA" --graph trani
refused 1 'nowhere.lua' 'no such file' -- train nowhere.lua
refused 1 'nowhere' -- generate nowhere --prompt x
refused 1 "device 'cpuu'" "'cpu'" -- train "$LLAMA" --data "$ROOT/vm/sgl.h" --device cpuu
mkdir folder.lua
refused 1 'folder.lua' 'folder' -- train folder.lua
printf '\033Lua\124\000' >bytecode.lua
refused 1 'bytecode.lua' -- train bytecode.lua

run 0 help ops
says out 'matmul' 'linear_cross_entropy' 'e^x'
run 0 help nn
says out 'nn.linear' 'y = x W^T + b.' 'nn.attention'
run 0 help nn.attention
says out 'stdlib/nn/attention.lua' '@param'
# Every name that scripts have is told of, and the lists hold no other: a file may have several, or none.
for library in nn optim models; do
    echo "print(table.concat(getmetatable(sgl.$library).names, ' '))" | "$SGL" repl | tr ' ' '\n' | sort >names
    [ -s names ] || fail "sgl.$library has no names"
    run 0 help $library
    sed -n "s/^  $library\.\([a-z_0-9]*\) .*/\1/p" out | sort >listed
    for name in $(cat names); do
        run 0 help "$library.$name"
    done
    cmp -s names listed || fail "help $library: $(diff names listed)"
done
for name in sgl.min uniform nn.init.normal nn.init.zeros optim.wsd data.text; do
    run 0 help $name
done
run 0 help nn.parameter
says out 'nn.init.normal(0.02)' '@return sgl.parameter'
# A bare word is looked for in the libraries, and among the fields that heads of files tell of.
for word in moe mesh schedule compress; do run 0 help $word; done
run 0 help moe
says out 'stdlib/nn/moe.lua' 'stdlib/models/moe.lua'
run 0 help compress
says out 'stdlib/plan/init.lua' 'which gradients are exchanged'
run 0 help sgl.plan
says_not out require
refused 1 "help: there is no 'zzzz'" 'ops, nn, optim' -- help zzzz
refused 1 "'matmull'" "'matmul'" -- help matmull
refused 2 "'--step' is no option; did you mean '--steps'? \`sgl train --help\`" -- train "$LLAMA" --step 5

run 0 version
[ "$(cat out)" = "sgl $(sed -n 's/^#define SGL_VERSION "\(.*\)"/\1/p' "$ROOT/vm/sgl.h")" ] || fail "the version"
run 0 --version
says out 'sgl '
run 0 doctor
says out 'device cpu' 'transport self' 'transport mpi' SGL_NET SGL_VERIFY SGL_DUMP SGL_THREADS SGL_ISA SGL_DISABLE SGL_LOG threads
# A knob shows its value and not its default.
SGL_THREADS=7 "$SGL" doctor >out 2>err
grep -q "SGL_THREADS *= '7'" out || fail "doctor does not say what SGL_THREADS is"
