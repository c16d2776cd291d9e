#!/bin/sh
# On a terminal a run shows one line that is written anew; generation comes token by token; Ctrl-C from the keyboard stops
# a run in order.
. "$ROOT/tests/e2e/common.sh"
make_text 8000 text

on_terminal "stty cols 200; '$SGL' train '$LLAMA' $TINY --data text --steps 20 --eval-every 10 --out run" </dev/null
bars=$(tr '\r' '\n' <terminal | grep -c '/20 \[')
[ "$bars" -eq 20 ] || fail "$bars bars, not 20"
tr '\r' '\n' <terminal | grep '10/20 \[##########\.\.\.\.\.\.\.\.\.\.\]' >bar || fail "no bar of step 10"
says bar ' loss ' ' lr ' ' norm ' ' tok/s' ' mfu ' ' MiB' ' left '
# No step is quicker than what the machine can do.
holds "$(tr '\r' '\n' <terminal | sed -n 's/.* mfu \([0-9]*\)%.*/\1/p' | sort -n | tail -n 1) <= 100"
says terminal 'held-out loss' 'saved run/step-00000020' 'status 0'
[ "$(tr '\r' '\n' <terminal | grep -c '^step [0-9]*/20')" -eq 0 ] || fail "plain lines on a terminal"

# On a narrow one the bar gives way to the numbers, and the line is never longer than the terminal.
on_terminal "stty cols 80; '$SGL' train '$LLAMA' $TINY --data text --steps 20 --out narrow" </dev/null
tr '\r' '\n' <terminal | grep '^.*10/20 ' | sed 's/\x1b\[K//' >bar || fail "no line of step 10"
says bar ' loss ' ' tok/s' ' left '
holds "$(wc -c <bar) <= 80"

on_terminal "'$SGL' generate run --prompt 'the ' --tokens 20" </dev/null
says terminal 'the ' 'status 0'

# The key Ctrl-C.
ten_steps() { [ -e keys.log ] && [ "$(grep -c step keys.log)" -ge 10 ]; }
{
    until_true ten_steps
    printf '\003'
    until_true has_ended
} | on_terminal "'$SGL' train '$LLAMA' $TINY --data text --steps 1000000 --eval-every 0 --out keys --log keys.log"
says terminal 'interrupted after step' 'saved in keys' 'status 130'
