# common.sh -- what the tests of jobs share: a copy of the rank's program under this test's own name, so that a process left
# behind is found, and a launcher that is ended by force when it hangs.
# Comes in: RANKS, ROOT, SCRATCH, SANITIZE. Goes out: functions. Odd invariant: a job goes through sglcomm_launch's own words,
# which `ranks launch` hands to exec.
set -eu

export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's plugins are loaded and unloaded with what they hold
export OMPI_MCA_rmaps_base_oversubscribe=1
own="$SCRATCH/ranks"
cp "$RANKS" "$own"
export LD_LIBRARY_PATH="$(dirname "$RANKS")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

fail() {
    echo "FAILED: $*" >&2
    for stream in out err; do
        if [ -s "$stream" ]; then
            echo "---- the last job's $stream" >&2
            tail -n 30 "$stream" >&2
        fi
    done
    exit 1
}

# job CODE RANKS TIMEOUT_S WORK...: a job that must end with this status, or any but 0 for `bad`. Leaves out, err and
# took, in whole seconds.
job() {
    wanted=$1 number=$2
    shift 2
    since=$(date +%s)
    status=0
    rm -f failed.*
    timeout -k 5 60 "$own" launch "$number" "$@" >out 2>err </dev/null || status=$?
    took=$(($(date +%s) - since))
    [ "$status" -ne 124 ] && [ "$status" -ne 137 ] || [ "$wanted" = bad ] || fail "$number ranks, $*: status $status"
    case $wanted in
    bad) [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && [ "$status" -ne 2 ] || fail "$number ranks, $*: status $status" ;;
    *) [ "$status" -eq "$wanted" ] || fail "$number ranks, $*: status $status, not $wanted" ;;
    esac
    nobody_left "$number ranks, $*"
}

# The launcher has ended: ranks follow within a moment.
nobody_left() {
    for _ in $(seq 1 40); do
        pgrep -f "^$own" >/dev/null || return 0
        sleep 0.05
    done
    fail "$1: a process is left behind: $(pgrep -af "^$own")"
}

# says TEXT...: each is in what the job told of its failure, and it told that once.
says() {
    for text in "$@"; do grep -qF -- "$text" err || fail "'$text' is not in err"; done
    [ "$(grep -c '^sgl: ' err)" -eq 1 ] || fail "the failure is not told once"
}

# The rank of a job that was stopped, which mpirun lets go on before it ends it: what that one says is left out.
stopped=none
failed() { grep '^rank [0-9]* failed after' out | grep -v "^rank $stopped " || true; }

# Seconds that the ranks which failed had to wait for their turn, all together: none on a machine that is idle.
late() { failed | awk '{ late += $9 } END { print late + 0 }'; }

# failed_within RANKS SECONDS: so many ranks came back with an error, each in that time, beside what the machine was late.
failed_within() {
    [ "$(failed | wc -l)" -eq "$1" ] || fail "not $1 ranks came back with an error"
    failed | awk -v most="$2" -v late="$(late)" '$5 + 0 > most + late { exit 1 }' || fail "a rank needed more than $2 s"
}

# says_number TEXT LEAST MOST: behind the text stands a number from LEAST to below MOST, or beyond it by what the machine was late.
says_number() {
    number=$(sed -n "s/.*$1\([0-9.]*\) s.*/\1/p" err)
    awk -v n="${number:--1}" -v least="$2" -v most="$3" -v late="$(late)" 'BEGIN { exit !(n >= least && n < most + late) }' ||
        fail "'$1$number' is not from $2 to $3 s"
}
