#!/bin/sh
# The device cuda where something is missing: the module, its build, the driver, a GPU: a status of 1 at once, and a message
# that says what to do; doctor tells the same and goes on. With a driver but no GPU behind it (tests/cuda) a script is
# traced, compiled and launched to its end: all but the numbers.
. "$ROOT/tests/e2e/common.sh"

lacks() { # TEXT...: train on cuda fails with these, and so says doctor
    refused 1 "$@" -- train "$GPT2" --device cuda --steps 1
    run 0 doctor
    says out 'device cuda' 'cannot be opened: device cuda: ' 'device null' "$1"
}

refused 1 "there is no device 'cudda'; this build has cpu, cuda and null; did you mean 'cuda'?" -- train "$GPT2" --device cudda

export SGL_MODULES="$MODULES/foreign"
lacks "$MODULES/foreign/libsgl_cuda.so is of another build of sgl"
export SGL_MODULES="$MODULES/bare"
lacks "$MODULES/bare/libsgl_cuda.so is of another build of sgl"
export SGL_MODULES=nowhere
lacks 'nowhere/libsgl_cuda.so: cannot open shared object file'
unset SGL_MODULES

# What is found nowhere, SGL_MODULES aside: a copy of the command where no module lies beside it.
mkdir -p alone/bin
cp "$SGL" alone/bin/sgl
status=0
alone/bin/sgl train "$GPT2" --device cuda >out 2>err || status=$?
[ $status -eq 1 ] || fail "without a module: status $status"
says err 'there is no libsgl_cuda.so beside the library: it is built where the CUDA toolkit is (nvcc)' SGL_MODULES

[ -e "${SGL%/*}/libsgl_cuda.so" ] || {
    echo "no CUDA toolkit: the module is not built, and nothing more is tested" >&2
    exit 0
}
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    lacks 'there is no driver of an NVIDIA GPU on this machine: libcuda.so.1'
fi
export LD_LIBRARY_PATH="$DRIVER${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
SGL_TESTS_DRIVER=old lacks 'the driver is of CUDA 11.8, and this module of CUDA'
SGL_TESTS_DRIVER=none lacks 'no GPU that it may use'
SGL_TESTS_DRIVER=early lacks 'compute capability 7.5'
SGL_CUDA_DEVICE=1 lacks 'SGL_CUDA_DEVICE is 1, and there are 1 GPUs'

# From a script to launches, and from then on nothing is compiled. NVRTC is a library of its own, which a toolkit may lack.
"$SGL" doctor >out 2>&1
grep -q '  NVRTC [0-9]' out || {
    echo "no NVRTC: no program is made" >&2
    exit 0
}
small='--set bytes=true --set dim=16 --set layers=1 --set heads=2 --set seq=16 --set batch=4 --steps 2 --quiet'
export SGL_CACHE="$PWD/cache" SGL_LOG=debug
# shellcheck disable=SC2086
run 0 train "$GPT2" --device cuda --data "$ROOT/docs/language.md" $small --out cold
says err 'texts compiled, 0 from the cache'
# shellcheck disable=SC2086
run 0 train "$GPT2" --device cuda --data "$ROOT/docs/language.md" $small --out warm
says err ' 0 texts compiled'
grep 'texts compiled' err | grep -v ' 0 texts compiled' && fail "a warm start compiled"
[ -f warm/step-00000002/parameters.safetensors ] || fail "no checkpoint is written from the device"

# Moves to memory of the host and back, on streams of their own: as branches of a CUDA graph, in a loop over micro-batches, where a
# graph ends between a move and its arrival, and launched one by one.
moved='--set plan.offload=moments,activations,params --set plan.bucket=1KB --steps 2 --quiet'
# shellcheck disable=SC2086
run 0 train "$LLAMA" --device cuda --data "$ROOT/docs/language.md" $TINY $moved --out moved
# shellcheck disable=SC2086
run 0 train "$LLAMA" --device cuda --data "$ROOT/docs/language.md" $TINY $moved --set micro=2 --out moved-micro
# shellcheck disable=SC2086
SGL_CUDA_GRAPH=0 run 0 train "$LLAMA" --device cuda --data "$ROOT/docs/language.md" $TINY $moved --out moved-alone

# A profile of it: marks on the stream, rates that are told; and what a profiler hears of a step: a range around each launch.
unset SGL_LOG
# shellcheck disable=SC2086
run 0 profile "$GPT2" --device cuda --data "$ROOT/docs/language.md" ${small% --steps*} --steps 2 --timeline line.json \
    --machine tflops=50,narrow_tflops=700,gbytes_s=4000
says out 'profile of program "train": 2 steps, ' 'roof: ' 'products 50 TFLOP/s in f32, 700 in bf16' 'fused kernel' 'gpt2.lua:'
lua5.4 "$ROOT/tests/e2e/timeline.lua" line.json 1
[ -e "$DRIVER/nvtx.so" ] || exit 0
# shellcheck disable=SC2086
NVTX_INJECTION64_PATH="$DRIVER/nvtx.so" run 0 train "$GPT2" --device cuda --data "$ROOT/docs/language.md" $small --out heard
says err 'nvtx: attention f32[4,16,2,8]  ; ' 'nvtx: fused kernel 0' 'gpt2.lua:21 blocks.0.attn' 'ranges, all of domain sgl ended'
