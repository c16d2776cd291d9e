# common.sh -- what the end-to-end tests share. A test is a sh script that begins with `. "$ROOT/tests/e2e/common.sh"`, runs
# the real command $SGL in the empty folder $SCRATCH, and says with these functions what must hold; the first thing that
# does not hold is told, with what the command printed, and ends the test.
# Comes in: SGL, ROOT, SCRATCH (tests/CMakeLists.txt). Goes out: functions, and TINY, the options of a model so small that
# a hundred steps take a second.
# Odd invariant: a sanitizer's report ends the command with status 99, so that an expected failure is never taken for it.
set -eu

TINY='--set dim=16 --set layers=2 --set heads=2 --set kv_heads=1 --set ffn=32 --set seq=16 --set batch=4 --set warmup=5'
LLAMA="$ROOT/examples/llama.lua"
GPT2="$ROOT/examples/gpt2.lua"
TINY_GPT2='--set bytes=true --set dim=16 --set layers=2 --set heads=2 --set seq=16 --set batch=4 --set warmup=5'

fail() {
    echo "FAILED: $*" >&2
    for stream in out err; do
        if [ -s "$stream" ]; then
            echo "---- the last command's $stream" >&2
            tail -n 40 "$stream" >&2
        fi
    done
    exit 1
}

# run CODE ARGUMENT...: the command with these arguments; its status must be CODE. Leaves the files out and err.
run() {
    code=$1
    shift
    status=0
    "$SGL" "$@" >out 2>err </dev/null || status=$?
    [ "$status" -eq "$code" ] || fail "sgl $*: status $status, not $code"
}

# says FILE TEXT...: the file holds each text. says_not: none of them.
says() {
    file=$1
    shift
    for text in "$@"; do grep -qF -- "$text" "$file" || fail "'$text' is not in $file"; done
}
says_not() {
    file=$1
    shift
    for text in "$@"; do ! grep -qF -- "$text" "$file" || fail "'$text' is in $file"; done
}

# refused CODE TEXT... -- ARGUMENT...: the command fails with CODE, prints nothing on stdout, and says each text on stderr.
refused() {
    wanted=$1
    shift
    texts=
    while [ "$1" != -- ]; do
        texts="$texts$1
"
        shift
    done
    shift
    run "$wanted" "$@"
    [ ! -s out ] || fail "sgl $*: it printed something before it failed"
    printf '%s' "$texts" | while IFS= read -r text; do says err "$text"; done
}

same() {
    cmp -s "$1" "$2" || fail "$1 and $2 differ: $(diff "$1" "$2" | head -n 6)"
}
differ() {
    ! cmp -s "$1" "$2" || fail "$1 and $2 are the same"
}

# make_text BYTES FILE: sentences that a small model learns quickly, the same ones each time.
make_text() {
    awk -v bytes="$1" 'BEGIN {
        split("the old king|a young fox|her brother|the grey cat|our neighbour", who, "|")
        split("saw|followed|called|remembered|lost", did, "|")
        split("the river|a green apple|the long road|his lantern|an empty house", what, "|")
        for (seed = 7; total < bytes; ) {
            seed = (seed * 69069 + 5) % 4294967296; a = int(seed / 65536) % 5 + 1
            seed = (seed * 69069 + 5) % 4294967296; b = int(seed / 65536) % 5 + 1
            seed = (seed * 69069 + 5) % 4294967296; c = int(seed / 65536) % 5 + 1
            line = who[a] " " did[b] " " what[c] ".\n"; printf "%s", line; total += length(line)
        }
    }' >"$2"
}

# steps_of LOG: the lines of a log without what is measured in time, so that two runs can be compared bit for bit.
steps_of() { sed -E 's/,"(tokens_per_s|step_ms)":[^,}]*//g' "$1"; }

# tree FOLDER: every file of it with a sum of its content.
tree() { (cd "$1" && find . | LC_ALL=C sort | while read -r path; do [ -d "$path" ] && echo "$path" || cksum "$path"; done); }

# log NAME LOG STEP: the number of that name at that step.
log() { lua5.4 "$ROOT/tests/e2e/log.lua" get "$2" "$1" "$3"; }

# until_true COMMAND...: waits until it succeeds, two minutes at most.
until_true() {
    for _ in $(seq 1 2400); do
        "$@" && return 0
        sleep 0.05
    done
    fail "it never came that $*"
}

# on_terminal COMMAND: runs it (a text for sh) on a terminal, keys from stdin; what shows is in the file terminal, which ends
# with "status N". `script` (bsdutils, on every Debian) gives the terminal. Its shell is named, and traps the key Ctrl-C:
# dash would end with the command and bash would not.
on_terminal() {
    rm -f terminal
    SHELL=/bin/sh script -qefc "trap : INT; $1; echo status \$?" terminal >/dev/null || fail "there is no terminal"
}
has_ended() { grep -Eq 'status [0-9]' terminal 2>/dev/null; }

# holds EXPRESSION: arithmetic over numbers, by awk.
holds() { awk "BEGIN { exit !($1) }" || fail "it does not hold that $1"; }
