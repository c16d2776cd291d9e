#!/bin/sh
# Every public function of the library is annotated for editors (LuaCATS), with the names of its real parameters.
set -eu
lua5.4 "$ROOT/tests/dsl/annotations.lua" "$ROOT/stdlib"
