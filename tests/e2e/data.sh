#!/bin/sh
# Data files: the three token formats give the same run; each bad file is refused with its name and the offset.
. "$ROOT/tests/e2e/common.sh"
OPTIONS="--set vocab=97 --set dim=16 --set layers=1 --set heads=2 --set seq=16 --set batch=4 --steps 8 --quiet"

tokens() { lua5.4 "$ROOT/tests/e2e/damage.lua" "$@"; }

# train NAME FILE
train() {
    # shellcheck disable=SC2086
    run 0 train "$GPT2" $OPTIONS --data "$2" --out "$1" --log "$1.log"
    steps_of "$1.log" >"$1.steps"
}

tokens u16 plain.bin 3000
tokens u16 plain.u16 3000
tokens u32 wide.u32 3000
tokens llmc headed.bin 3000
for file in plain.bin plain.u16 wide.u32 headed.bin; do train "$file.run" "$file"; done
same plain.bin.run.steps plain.u16.run.steps
same plain.bin.run.steps wide.u32.run.steps
same plain.bin.run.steps headed.bin.run.steps

# Several files, as a list in the script.
head -c 3000 plain.bin >one.bin
tail -c 3000 plain.bin >two.bin
sed 's|path = cfg.tokens, vocab|path = { "one.bin", "two.bin" }, vocab|' "$GPT2" >many.lua
# shellcheck disable=SC2086
run 0 train many.lua $OPTIONS --out many --log many.log
differ many.log plain.bin.run.log

# bad FILE TEXT...: refused before anything is made.
bad() {
    file=$1
    shift
    # shellcheck disable=SC2086
    refused 1 "$file" "$@" -- train "$GPT2" $OPTIONS --data "$file" --out nothing
    [ ! -e nothing ] || fail "a folder was made"
}

# A file that is not there: how to name another. The model of the README, whose text nobody has, learns then.
bad missing.bin 'No such file' 'data.tokens' '--data FILE'
sed -n '/^```lua/,/^```/{/^```/!p}' "$ROOT/README.md" >readme.lua
refused 1 'book.txt' 'No such file' 'path' '--data FILE' -- train readme.lua --out nothing
make_text 8000 text
run 0 train readme.lua --set dim=16 --set layers=1 --set heads=2 --set kv_heads=1 --set ffn=32 --set seq=16 --set batch=2 \
    --data text --steps 2 --out readme --quiet

: >empty.bin
bad empty.bin 'empty'
head -c 60 plain.bin >short.bin
bad short.bin '29 tokens' 'windows'
head -c 2001 plain.bin >odd.bin
bad odd.bin 'offset 2000' 'cut off'
head -c 4002 wide.u32 >odd.u32
bad odd.u32 'offset 4000'
head -c 3001 headed.bin >odd-headed.bin
bad odd-headed.bin 'offset 8' '3000 tokens'
head -c 500 headed.bin | tail -c 400 >noheader.bin
tokens flip headed.bin 4
bad headed.bin 'offset 4' 'version'
bad missing.bin 'No such file'
bad "$ROOT" 'directory'

# A token outside the vocabulary is found before the run begins: the 1500th stands at byte 3000.
tokens u16 outside.bin 3000 1500 97
bad outside.bin 'outside.bin: offset 3000: token 97 is outside the vocabulary of 97'
tokens llmc outside.llmc.bin 3000 1500 4000
bad outside.llmc.bin 'outside.llmc.bin: offset 4024: token 4000'
tokens u32 outside.u32 3000 1500 4000000000
bad outside.u32 'outside.u32: offset 6000: token 4000000000'

# No pipe is read, and what is not said is not guessed.
mkfifo pipe.bin
bad pipe.bin 'a pipe or a device' 'to a file'
cp plain.bin tokens
# shellcheck disable=SC2086
refused 1 'tokens: ' 'format' 'u16' -- train "$GPT2" $OPTIONS --set vocab=50257 --data tokens --out nothing

# A pattern names many files, in the order of their names.
# shellcheck disable=SC2086
run 0 train "$GPT2" $OPTIONS --data '[ot][nw][eo].bin' --out pattern --log pattern.log
steps_of many.log >a
steps_of pattern.log >b
same a b

# A file that is cut off during a run: the run says where, and what it has learnt is saved first.
tokens u16 cut.bin 30000
# shellcheck disable=SC2086
"$SGL" train "$GPT2" $OPTIONS --steps 1000000 --data cut.bin --out cut --log cut.log >out 2>err &
process=$!
has_lines() { [ -f cut.log ] && [ "$(wc -l <cut.log)" -ge 5 ]; }
until_true has_lines
truncate -s 20 cut.bin
status=0
wait "$process" || status=$?
[ "$status" -eq 1 ] || fail "the run ended with status $status, not 1"
says err 'cut.bin: offset ' 'the file ends before it; it had 60000 bytes'
[ -d "cut/$(printf 'step-%08d' "$(wc -l <cut.log)")" ] || fail "the last step of the log is not saved: $(ls cut)"

# Texts: too short, and none named.
printf 'a short text' >short.txt
# shellcheck disable=SC2086
refused 1 'short.txt' '12 tokens' -- train "$LLAMA" $TINY --data short.txt
# shellcheck disable=SC2086
refused 1 '--data FILE' -- train "$LLAMA" $TINY
