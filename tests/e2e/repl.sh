#!/bin/sh
# `sgl repl`, from a pipe and on a terminal: expressions and statements, tensors computed at once, errors that lose nothing,
# statements over several lines; on a script: its graph, its program by line, shape, kernel and place; editing keys,
# completion, history, Ctrl-C.
. "$ROOT/tests/e2e/common.sh"

# lines OPTION... <lines: what the REPL says to them, in out and err.
lines() { "$SGL" repl "$@" >out 2>err || fail "sgl repl $*: status $?"; }

lines <<'LUA'
1 + 1
x = sgl.iota({ 2, 3 }, 1, "f32")
x
x * 10 + 0.5
(x * x):sum()
undefined_name.field
y = sgl.matmul(x, x)
x:transpose()
local hidden = 3
hidden
for i = 1, 3 do
  z = i
end
z
sgl.nn
sgl.grad((x * x):sum(), { x })[1]
sgl.equal(x, x)
sgl.iota({ 100, 100 })
print("printed")
"text", 3, nil
x:softmax():sum(-1)
(x - 5):log():sum(), 0 / 0
LUA
says out '2' 'f32[2,3]' '{ 0, 1, 2 }' '{ 0.5, 10.5, 20.5 }' 'f32[] 10' 'f32[3,2]' '{ 0, 0 }' 'nil' '{ 0, 2, 4 }' 'true' '...' \
    'printed' 'text' 'f32[2] { 1, 1 }' 'f32[] nan'
says_not out '-nan'
grep -qx nan out || fail "0 / 0 is nan"
says err 'undefined_name' 'matmul' '[2,3] x [2,3]'
[ "$(grep -c 'a local ends with its line' err)" -eq 1 ] || fail "a local is lost, and it is not said once"
[ "$(grep -c . err)" -le 7 ] || fail "more errors than the two"

# A line costs what it shows and nothing that was shown before; lists are shown; help of ops, layers, functions.
lines <<'LUA'
sgl.zeros({ 2, 3 }):shape()
:help sgl.rms_norm
:help nn.rms_norm
:help optim.warmup_cosine
:help relu
:help linaer
LUA
says out '{ 2, 3 }' 'op rms_norm(x, gain)' 'shapes: [..., d], [d] -> [..., d]' 'derivative: ' 'stdlib/nn/rms_norm.lua' 'Weight (the gain) [dim]' '@param dim integer' 'half a cosine' \
    'function fn.relu(x)'
says err "no 'linaer'" "'linear'"

lines <<'LUA'
f = function(x)
  return x
LUA
says err 'ends within a statement'
lines <<'LUA'
f = function(x)
  return x +
    1
end
f(3)
LUA
says out 4
printf '1 +' | "$SGL" repl >out 2>err || fail "an open end"
says err 'ends within a statement'
printf 'x = 5\nx * 2' | "$SGL" repl >out 2>err || fail "no line's end at the end"
says out 10
lines <<'LUA'
:list
:grahp
:quit
1/0
LUA
says err 'no script is loaded' "':grahp'" "':graph'"
[ ! -s out ] || fail ":quit did not leave"

# On a script.
# shellcheck disable=SC2086
lines "$LLAMA" $TINY <<'LUA'
:help
:graph
:graph fuse
:params embed
:memory
:use decode
:params cache
:use trani
1 + 1
job
LUA
says out ':graph' ':list' ':search' ':node' ':params' ':memory' 'graph "train"' 'grad(' 'fused(' 'embed.weight' 'f32[256,16]' \
    'adamw.m/embed.weight' 'transient peak' "looking at the graph 'decode'" 'cache.k/blocks.0.attn' 'job of llama' '2'
says err "'trani'"
# shellcheck disable=SC2086
printf ':list\n' | "$SGL" repl "$LLAMA" $TINY >all 2>err || fail ":list"
[ "$(grep -c '; .*llama.lua:' all)" -ge 10 ] || fail ":list shows script lines"
says all 'fused kernel 0' 'attention' '@arena+'
number=$(sed -n 's/^ *\([0-9]*\)  attention .*/\1/p' all | head -n 1)
# shellcheck disable=SC2086
printf ':list attention\n:node %s\n:search blocks.1.attn.wq\n:node 99999\n:search zzz\n:list zzz\n:node x\n' "$number" |
    "$SGL" repl "$LLAMA" $TINY >out 2>err || fail ":node"
says out "$number  attention" 'line ' 'llama.lua:' 'reads ' 'writes ' 'f32[4,' ' at arena+' 'graph, as traced' 'program' \
    'state "blocks.1.attn.wq"'
printf ":node %s\n" "$(sed -n "s/^ *\([0-9]*\)  fused kernel .*/\1/p" all | head -n 1)" >line
# shellcheck disable=SC2086
"$SGL" repl "$LLAMA" $TINY <line >kernel 2>&1 || fail ":node of a fused kernel"
[ "$(grep -vc -e "^  line" -e " at " kernel)" -ge 3 ] || fail "the kernel is not described"
says err 'no instruction 99999' "'zzz'" "'x' is no number"
refused 1 'nowhere.lua' -- repl nowhere.lua

# On a terminal: history and completion; Ctrl-C gives up a line, a statement and a loop; Ctrl-D leaves.
# (libedit's el_end forgets the names that EL_ADDFN has copied: the one leak that is not ours.)
export HOME="$SCRATCH"
echo 'leak:wcsdup' >suppressed
export LSAN_OPTIONS="${LSAN_OPTIONS:-}:suppressions=$SCRATCH/suppressed:print_suppressions=0"
shows() { grep -qF -- "$1" terminal 2>/dev/null; }
prompts() { [ "$(grep -o 'sgl> ' terminal 2>/dev/null | wc -l)" -ge "$1" ]; }
# type KEYS TEXT: types the keys and waits until the text shows.
type_keys() {
    printf '%b' "$1"
    until_true shows "$2"
}
(
    until_true prompts 1
    type_keys 'abc = 12345\n' ''
    until_true prompts 2
    type_keys 'ab\t + 1\n' 12346
    type_keys 'sgl.nn.rms_\t\n' 'function: '
    until_true prompts 4
    type_keys 'x = sgl.iota({ 3 }, 0, "f32")\n' ''
    until_true prompts 5
    type_keys 'x:softm\t():sum():cast("f64")\n' 'f64[] 1'
    until_true prompts 6
    type_keys 'this is given up' 'given up'
    printf '\003'
    until_true prompts 7
    type_keys 'function f()\n' '...> '
    printf '\003'
    until_true prompts 8
    type_keys 'while true do end\n' 'true do end'
    sleep 0.5
    type_keys '\003' interrupted
    type_keys '2 * 111\n' 222
    until_true prompts 10
    printf '\033[A\n'
    until_true prompts 11
    printf '\004'
    until_true has_ended
) | on_terminal "TERM=xterm '$SGL' repl"
says terminal 'sgl> ' '...> ' '12346' 'function: ' 'f64[] 1' '^C' interrupted 222 'status 0'
says_not terminal 'unexpected symbol' 'nil value'
[ "$(grep -c '^222' terminal)" -eq 2 ] || fail "the key Up does not bring the line before"
says "$HOME/.sgl_history" 'abc'
[ ! -e "$ROOT/.sgl_history" ] || fail "the history is in the wrong place"
