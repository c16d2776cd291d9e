#!/bin/sh
# Editing the example wrongly: one line `file:line: op: what is wrong` with the shapes, then the frames of the script, never
# a line of the library; then status 1, and no folder is made.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text
first=$(grep -n 'drop(attn(norm1' "$LLAMA" | cut -d: -f1)
tied=$(grep -n 'tied_head' "$LLAMA" | cut -d: -f1)
attention=$(grep -n 'local attn = ' "$LLAMA" | cut -d: -f1)

# edited SED: llama.lua, the example changed.
edited() {
    sed "$1" "$LLAMA" >llama.lua
    ! cmp -s llama.lua "$LLAMA" || fail "the edit '$1' changes nothing"
}

# wrong LINE TEXT...: training the edited example fails there.
wrong() {
    line=$1
    shift
    # shellcheck disable=SC2086
    refused 1 "$@" -- train llama.lua $TINY --set seq=12 --data text --out nothing
    head -n 1 err | grep -q "^sgl: llama.lua:$line: " || fail "the first line names not llama.lua:$line"
    tail -n +2 err | grep -q 'llama.lua:' || fail "there is no traceback"
    says_not err 'stdlib/' '[C]'
    [ ! -e nothing ] || fail "a folder was made"
}

edited "${first}s/x + drop/x:transpose() + drop/"
wrong "$first" 'add:' '[4,12,16]'
edited "${first}s/norm1(x)/norm1(x:reshape(48, 17))/"
wrong "$first" 'reshape:' '[4,12,16]' '48' '17'
edited "${first}s/x = x + drop(attn(norm1(x)))/x = sgl.matmul(x, sgl.zeros({ 5, 16 }))/"
wrong "$first" 'matmul:' '[4,12,16]' '[5,16]'
edited "${first}s/x = x + drop(attn(norm1(x)))/x = sgl.sillu(x)/"
wrong "$first" "no 'sillu'" "'silu'"
edited "${first}s/x = x + drop(attn(norm1(x)))/x = x:expp()/"
wrong "$first" "expp"
edited "${first}s/x = x + drop(attn(norm1(x)))/if x > 0 then x = -x end/"
wrong "$first" 'sgl.less' 'sgl.select'
edited "${first}s/x = x + drop(attn(norm1(x)))/x = x + undefined/"
wrong "$first" 'add:' 'nil value'
edited "${tied}s/tied_head(embed,/tied_head(norm,/"
wrong "$tied" 'tied_head' 'embedding'
edited "s/cfg.layers, block/cfg.lyers, block/"
wrong "$(grep -n lyers llama.lua | cut -d: -f1)" "no field 'lyers'" "'layers'"
edited "s/  optim = optim.adamw/  optmi = optim.adamw/"
wrong "$(grep -n 'return sgl.job' llama.lua | cut -d: -f1)" "no field 'optmi'" "'optim'"
edited "s/optim.warmup_cosine/optim.warmup_cosin/"
wrong "$(grep -n 'warmup_cosin ' llama.lua | cut -d: -f1)" "warmup_cosin" "'warmup_cosine'"

# What the model's own fields forbid, by --set and by editing.
# shellcheck disable=SC2086
refused 1 "$LLAMA:$attention: " 'attention' 'heads (3)' -- train "$LLAMA" $TINY --set heads=3 --data text
# shellcheck disable=SC2086
refused 1 "$LLAMA:$attention: " 'attention' 'kv_heads (3)' -- train "$LLAMA" $TINY --set heads=4 --set kv_heads=3 --data text
# shellcheck disable=SC2086
refused 1 "$LLAMA:" 'stack' -- train "$LLAMA" $TINY --set layers=-1 --data text
# shellcheck disable=SC2086
refused 1 "$LLAMA:" 'dropout' '1.5' -- train "$LLAMA" $TINY --set dropout=1.5 --data text
# shellcheck disable=SC2086
refused 1 'micro to 4 at most' -- train "$LLAMA" $TINY --set micro=5 --data text

# Lua's own errors: syntax, what a sandbox leaves out, a script that gives no job.
script() { printf '%s\n' "$@" >script.lua; }
bad() {
    refused 1 script.lua "$@" -- train script.lua --data text
    says_not err 'stdlib/'
}
script 'local x = = 3'
bad 'script.lua:1:' 'unexpected symbol'
script 'local sgl = require "sgl"' 'io.open("x", "w")'
bad 'script.lua:2:' "'io'"
script 'os.exit(3)'
bad 'script.lua:1:' 'exit'
script 'return 3'
bad 'return sgl.job'
script 'local sgl = require "slg"'
bad 'script.lua:1:' "'slg'" "'sgl'"
script 'error("a message of its own")'
bad 'script.lua:1: a message of its own'
script 'error("before\0behind")'
bad 'script.lua:1: before\0behind'
script 'error({ code = 3 })'
bad ''
