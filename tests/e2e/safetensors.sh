#!/bin/sh
# safetensors.sh -- Python's safetensors reads the files of the store, and the store reads Python's.
# In: ROOT, SCRATCH as ctest gives them; PYTHON (python3), CC (cc). Out: status 77 (skipped) where Python has no
# safetensors or numpy. The tool is compiled here from the sources of the store, so that no other room is needed.
set -eu
PYTHON=${PYTHON:-python3}
if ! "$PYTHON" -c 'import numpy, safetensors.numpy' 2>/dev/null; then
    echo "safetensors.sh: $PYTHON has no safetensors and numpy (pip install safetensors numpy); skipped"
    exit 77
fi
cd "$SCRATCH"
${CC:-cc} -std=c11 -D_GNU_SOURCE -I"$ROOT/vm" "$ROOT"/tests/e2e/safetensors_tool.c "$ROOT"/vm/store/*.c \
    "$ROOT"/vm/core/*.c -lxxhash -lm -o tool
./tool write .
"$PYTHON" - <<'END'
import json, struct, subprocess
import numpy, safetensors
from safetensors.numpy import load_file, save_file

widths = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
          "U8": 1, "U16": 2, "U32": 4, "BOOL": 1}
names = {"f64": "F64", "f32": "F32", "bf16": "BF16", "f16": "F16", "f8e4m3": "F8_E4M3", "f8e5m2": "F8_E5M2", "i64": "I64",
         "i32": "I32", "i16": "I16", "i8": "I8", "u8": "U8", "u16": "U16", "u32": "U32", "bool": "BOOL"}
order = ["bool", "u32", "u16", "u8", "i8", "i16", "i32", "i64", "f8e5m2", "f8e4m3", "f16", "bf16", "f32", "f64"]

def expected(number, count, is_bool=False):
    return bytes((31 * number + i) % 251 % (2 if is_bool else 256) for i in range(count))

def whole(kinds):
    tensors = {}
    for number, kind in enumerate(kinds):
        tensors["of." + kind] = (names[kind], [3, 5], expected(number, 15 * widths[names[kind]], kind == "bool"))
    tensors["empty"] = ("F32", [0, 4], b"")
    tensors['scalar "caf\u00e9"\n'] = ("F32", [], expected(len(kinds) + 1, 4))
    return tensors

def raw(path):
    with open(path, "rb") as file:
        return {name: (t["dtype"], t["shape"], bytes(t["data"])) for name, t in safetensors.deserialize(file.read())}

def aligned(path):
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    assert (8 + length) % 64 == 0, path
    for name, entry in header.items():
        assert entry["data_offsets"][0] % widths[entry["dtype"]] == 0, (path, name)

# Every dtype, byte by byte.
assert raw("all.safetensors") == whole(order), raw("all.safetensors")
assert raw("none.safetensors") == {}
assert load_file("none.safetensors") == {}

# As numpy arrays: whole files, and one tensor at a time through a map.
for path in ["numpy.safetensors"]:
    want = whole([kind for kind in order if kind not in ("bf16", "f8e4m3", "f8e5m2")])
    arrays = load_file(path)
    assert arrays.keys() == want.keys()
    with safetensors.safe_open(path, framework="numpy") as file:
        for name, (dtype, shape, data) in want.items():
            for array in (arrays[name], file.get_tensor(name)):
                assert list(array.shape) == shape and array.tobytes() == data, name
                assert array.dtype.itemsize == widths[dtype], name

# A checkpoint: its two files together are the tensors, its manifest is JSON.
parameters = load_file("run/step-00000003/parameters.safetensors")
states = load_file("run/step-00000003/states.safetensors")
assert not parameters.keys() & states.keys() and parameters.keys() | states.keys() == want.keys()
for name, array in {**parameters, **states}.items():
    assert array.tobytes() == want[name][2], name
with open("run/step-00000003/manifest.json", encoding="utf-8") as file:
    manifest = json.load(file)
assert manifest["step"] == 3 and manifest["meta"] == {"caf\u00e9": 1}
assert [len(file["tensors"]) for file in manifest["files"]] == [len(parameters), len(states)]
for path in ["all.safetensors", "numpy.safetensors", "run/step-00000003/parameters.safetensors",
             "run/step-00000003/states.safetensors"]:
    aligned(path)

# The other way: files that Python wrote.
rng = numpy.random.default_rng(1)
ours = {"a.b": ("f32", rng.random((2, 3), dtype=numpy.float32)), "n": ("i64", numpy.arange(-3, 4)),
        "flag": ("bool", numpy.array([True, False])), "half": ("f16", rng.random(5).astype(numpy.float16)),
        "none": ("f64", numpy.zeros((3, 0))), "one": ("u8", numpy.array(7, dtype=numpy.uint8))}
save_file({name: array for name, (_, array) in ours.items()}, "python.safetensors", metadata={"format": "pt"})
printed = subprocess.run(["./tool", "print", "python.safetensors"], check=True, capture_output=True, text=True).stdout
lines = sorted(f"{name} {dtype}{' ' if array.shape else ''}{','.join(map(str, array.shape))} {array.tobytes().hex()}"
               for name, (dtype, array) in ours.items())
assert sorted(printed.splitlines()) == lines, printed
print("safetensors", safetensors.__version__, "reads and is read")
END
