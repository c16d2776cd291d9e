#!/bin/sh
# What the README says of embedding: the install rule puts command, library, header and pkg-config file where they belong, and
# the two compiler lines build a host that runs.
. "$ROOT/tests/e2e/common.sh"
build=$(dirname "$SGL")
flags=${SANITIZE:+-fsanitize=$SANITIZE}
cmake --install "$build" --prefix "$SCRATCH/prefix" >installed 2>&1 || fail "cmake --install: $(cat installed)"
[ -x prefix/bin/sgl ] && [ -f prefix/include/sgl.h ] || fail "$(cat installed)"
[ "$(prefix/bin/sgl version)" = "$("$SGL" version)" ] || fail "another command was installed"
library=$(dirname "$(find prefix -name libsgl.so)")

# A moved prefix is a good one too.
mv prefix moved
library=moved${library#prefix}
PKG_CONFIG_PATH=$SCRATCH/$library/pkgconfig
export PKG_CONFIG_PATH
[ "sgl $(pkg-config --modversion sgl)" = "$("$SGL" version)" ] || fail "the version of sgl.pc"
# shellcheck disable=SC2046,SC2086
gcc "$ROOT/tests/embed/host.c" $flags $(pkg-config --cflags --libs sgl) -lm -o host || fail "the line of pkg-config"
LD_LIBRARY_PATH=$library ./host >out 2>err || fail "the installed library"

# The line for a build folder, as the README has it: `-Ibuild` of a preset is this build here.
line=$(sed -n 's/^    \(gcc host.c .*\)/\1/p' "$ROOT/README.md")
[ -n "$line" ] || fail "the README has no line for a host"
cp "$ROOT/tests/embed/host.c" .
ln -s "$build" build
ln -s "$ROOT/vm" vm
$line $flags || fail "$line"
./host >out 2>err || fail "the host of the README's line"
