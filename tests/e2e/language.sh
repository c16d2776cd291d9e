#!/bin/sh
# ctest: timeout 600
# Every block of code in docs/language.md, control.md and dims.md, as snippets.lua tells them apart: lines of the REPL show what
# stands beside them, scripts and pieces train two steps, what must fail does so with the words quoted, commands succeed.
# Every function, layer, option of the command that these documents and the README name is there. docs/precision.md has no
# blocks: the plans and settings that it names train, and the numbers of the log have its names.
. "$ROOT/tests/e2e/common.sh"
make_text 40000 book.txt
make_text 9000 other.txt

# shows FILE WANTED ERRORS: the REPL on these lines shows what is wanted, blanks aside, and tells these errors and no others.
shows() {
    "$SGL" repl <"$1" >out 2>err || fail "sgl repl: status $?"
    tr -s ' \n' '\n\n' <out >found
    tr -s ' \n' '\n\n' <"$2" >expected
    same found expected
    grep '^console:' err >told || true
    [ "$(grep -c . told)" -eq "$(grep -c . "$3")" ] || fail "so many errors are not quoted"
    paste -d '\n' told "$3" | while read -r have && read -r want; do
        [ "${have#console:*: }" = "$want" ] || fail "'$have' is quoted as '$want'"
    done
}

for document in language control dims; do
    rm -rf blocks
    mkdir blocks
    lua5.4 "$ROOT/tests/e2e/snippets.lua" "$ROOT/docs/$document.md" blocks || fail "$document.md"
    [ -s blocks/list ] || fail "$document.md has no block"
    while read -r line kind file text; do
        echo "$document.md:$line $kind"
        [ ! -f "blocks/$file" ] || cp "blocks/$file" .
        case $kind in
        repl) shows blocks/repl blocks/repl.wanted blocks/repl.errors ;;
        train) run 0 train "$file" --steps 2 --quiet --out "${file%.lua}.tried" ;;
        refused) refused 1 "$text" -- train "$file" --steps 2 --quiet --out nothing ;;
        commands) (sgl() { "$SGL" "$@"; } && set -e && . "./$file") >out 2>err </dev/null || fail "$document.md:$line: a command" ;;
        esac
    done <blocks/list
done

grep -o 'plan\.precision=[a-z0-9]*' "$ROOT/docs/precision.md" >named
grep -o 'sgl\.plan { [a-z]* = "[a-z0-9]*" }' "$ROOT/docs/precision.md" |
    sed 's/sgl.plan { \([a-z]*\) = "\([a-z0-9]*\)" }/plan.\1=\2/' >>named
sort -u named >settings
[ "$(grep -c . settings)" -ge 2 ] || fail "docs/precision.md names other settings"
while read -r setting; do
    run 0 train first.lua --set "$setting" --steps 2 --quiet --out "of.$setting" --log "$setting.log"
done <settings
for name in scale skipped; do
    grep -q "\`$name\`" "$ROOT/docs/precision.md" || fail "docs/precision.md does not name $name"
    log "$name" plan.precision=fp16.log 2 >/dev/null || fail "there is no $name in the log"
done
for limit in scale_growth_interval max_skips; do
    grep -q "\`$limit\`" "$ROOT/docs/precision.md" || fail "docs/precision.md does not name $limit"
    run 0 train first.lua --set plan.precision=fp16 --set "plan.$limit=3" --steps 2 --quiet --out "of.$limit"
done

# Names: sgl.x, nn.x, optim.x, data.x, methods x:name(...), flags of the command.
for document in README.md docs/language.md docs/control.md docs/precision.md docs/README.md; do
    grep -oE '(^|[^/a-z.])(sgl\.)?(sgl|nn|optim|data)\.[a-z_0-9]+(\.[a-z_0-9]+)?' "$ROOT/$document" |
        sed -E 's/^[^a-z]//; s/^(nn|optim|data)\./sgl.\1./; s/.*/assert(& ~= nil)/' >>names
    grep -oE '[a-z]:[a-z_0-9]+\(' "$ROOT/$document" | sed -E 's/.*:(.*)\(/assert(require("sgl.ops").\1 ~= nil)/' >>names
done
# No op: the header sgl.h, methods of other things, what is told not to be there.
sort -u names | grep -vE 'sgl\.h |\.(minimize|parameters|tensor|update|rep|item|method) ' >lines
[ "$(grep -c . lines)" -gt 90 ] || fail "the names are not found"
"$SGL" repl <lines >out 2>err || fail "sgl repl"
[ ! -s err ] || fail "the documents name what is not there"
for command in train eval generate export graph memory; do "$SGL" "$command" --help; done >help
cat "$ROOT/docs/language.md" "$ROOT/docs/control.md" "$ROOT/docs/precision.md" | grep -oE '(^|[ `])--[a-z][a-z-]+' |
    sed 's/.*--/--/' | sort -u >flags
while read -r flag; do
    grep -qE -- "$flag( |\$)" help || fail "the documents name $flag, which no command takes"
done <flags
