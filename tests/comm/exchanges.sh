#!/bin/sh
# exchanges.sh -- exchanges over MPI with 1 to 8 ranks: each kind, dtype and uneven counts, and 1,000 random ones over several
# groups with random sleeps, all against a plain computation; one rank busy for longer than the deadline; a world joined twice.
# ctest: serial
. "$ROOT/tests/comm/common.sh"

for number in 1 2 3; do job 0 $number 30 kinds; done
job 0 4 30 storm 1 1000
job 0 8 30 storm 2 240
job 0 2 1 busy 2
job 0 2 10 twice
SGL_NET=latency_us=200,gbps=2 job 0 3 30 storm 3 150

SGL_NET=gbps=fast job bad 2 10 kinds
grep -q "SGL_NET='gbps=fast'" err || fail "a shape that is none was taken"
SGL_TRANSPORT=pigeon job bad 1 10 kinds
grep -q "there is no transport 'pigeon'; this build has self and mpi" err || fail "a transport that is none was taken"
SGL_MODULES="$SCRATCH" job bad 1 10 kinds
grep -q 'libsgl_mpi.so: cannot open' err || fail "a module that is not there was opened"
# Without a launcher the process is a world of its own, and MPI is not started.
"$own" 5 kinds >out 2>err || fail "one rank without a launcher"
