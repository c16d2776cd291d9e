#!/bin/sh
# safetensors.sh -- the files of the store are safetensors files, and the store reads such files of others: a plain reader
# and writer of the format (safetensors_plain.py), and besides Python's own package, where numpy and safetensors are there.
# In: ROOT, SCRATCH as ctest gives them; PYTHON (python3), CC (cc). Out: status 77 (skipped) without Python.
# The tool is compiled here from the sources of the store, so that no other room is needed.
set -eu
PYTHON=${PYTHON:-python3}
if ! "$PYTHON" -c '' 2>/dev/null; then
    echo "safetensors.sh: there is no $PYTHON; skipped"
    exit 77
fi
cd "$SCRATCH"
${CC:-cc} -std=c11 -D_GNU_SOURCE -I"$ROOT/vm" "$ROOT"/tests/e2e/safetensors_tool.c "$ROOT"/vm/store/*.c \
    -DSGL_MODULE_FOLDER='"lib"' "$ROOT"/vm/core/*.c -lxxhash -lm -o tool
./tool write .
export PYTHONPATH="$ROOT/tests/e2e" PYTHONDONTWRITEBYTECODE=1
"$PYTHON" - <<'END'
import json, struct, subprocess
import safetensors_plain as plain

names = {"f64": "F64", "f32": "F32", "bf16": "BF16", "f16": "F16", "f8e4m3": "F8_E4M3", "f8e5m2": "F8_E5M2", "i64": "I64",
         "i32": "I32", "i16": "I16", "i8": "I8", "u8": "U8", "u16": "U16", "u32": "U32", "bool": "BOOL"}
order = ["bool", "u32", "u16", "u8", "i8", "i16", "i32", "i64", "f8e5m2", "f8e4m3", "f16", "bf16", "f32", "f64"]

def expected(number, count, is_bool=False):
    return bytes((31 * number + i) % 251 % (2 if is_bool else 256) for i in range(count))

def whole(kinds):
    tensors = {}
    for number, kind in enumerate(kinds):
        width = plain.WIDTHS[names[kind]]
        tensors["of." + kind] = (names[kind], [3, 5], expected(number, 15 * width, kind == "bool"))
    tensors["empty"] = ("F32", [0, 4], b"")
    tensors['scalar "caf\u00e9"\n'] = ("F32", [], expected(len(kinds) + 1, 4))
    return tensors

def printed(path):
    return sorted(subprocess.run(["./tool", "print", path], check=True, capture_output=True, text=True).stdout.splitlines())

def lines(tensors):
    kinds = {dtype: kind for kind, dtype in names.items()}
    return sorted(f"{name} {kinds[dtype]}{' ' if shape else ''}{','.join(map(str, shape))} {data.hex()}"
                  for name, (dtype, shape, data) in tensors.items())

# Every dtype, byte by byte; no tensor at all.
want = whole([kind for kind in order if kind not in ("bf16", "f8e4m3", "f8e5m2")])
assert plain.read("all.safetensors") == whole(order), plain.read("all.safetensors")
assert plain.read("numpy.safetensors") == want
assert plain.read("none.safetensors") == {}

# A checkpoint: its two files together are the tensors, its manifest is JSON.
parameters = plain.read("run/step-00000003/parameters.safetensors")
states = plain.read("run/step-00000003/states.safetensors")
assert not parameters.keys() & states.keys() and {**parameters, **states} == want
with open("run/step-00000003/manifest.json", encoding="utf-8") as file:
    manifest = json.load(file)
assert manifest["step"] == 3 and manifest["meta"] == {"caf\u00e9": 1}
assert [len(file["tensors"]) for file in manifest["files"]] == [len(parameters), len(states)]

# The other way.
ours = {"a.b": ("F32", [2, 3], struct.pack("<6f", *range(6))), "n": ("I64", [7], struct.pack("<7q", *range(-3, 4))),
        "flag": ("BOOL", [2], b"\1\0"), "half": ("F16", [5], struct.pack("<5e", *range(5))), "none": ("F64", [3, 0], b""),
        "one": ("U8", [], b"\7")}
plain.write("plain.safetensors", ours)
assert printed("plain.safetensors") == lines(ours), printed("plain.safetensors")
print("a plain reader and writer agree")

# Python's own package.
try:
    import numpy, safetensors
    from safetensors.numpy import load_file, save_file
except ImportError:
    print("numpy and safetensors are not there to be asked too")
    raise SystemExit(0)
with open("all.safetensors", "rb") as file:
    assert {name: (t["dtype"], t["shape"], bytes(t["data"]))
            for name, t in safetensors.deserialize(file.read())} == whole(order)
assert load_file("none.safetensors") == {}
arrays = load_file("numpy.safetensors")
assert arrays.keys() == want.keys()
with safetensors.safe_open("numpy.safetensors", framework="numpy") as file:
    for name, (dtype, shape, data) in want.items():
        for array in (arrays[name], file.get_tensor(name)):
            assert list(array.shape) == shape and array.tobytes() == data, name
            assert array.dtype.itemsize == plain.WIDTHS[dtype], name
for path, tensors in [("parameters", parameters), ("states", states)]:
    for name, array in load_file(f"run/step-00000003/{path}.safetensors").items():
        assert array.tobytes() == tensors[name][2], name
rng = numpy.random.default_rng(1)
arrays = {"a.b": rng.random((2, 3), dtype=numpy.float32), "n": numpy.arange(-3, 4), "flag": numpy.array([True, False]),
          "half": rng.random(5).astype(numpy.float16), "none": numpy.zeros((3, 0)), "one": numpy.array(7, dtype=numpy.uint8)}
save_file(arrays, "python.safetensors", metadata={"format": "pt"})
theirs = {name: (ours[name][0], list(array.shape), array.tobytes()) for name, array in arrays.items()}
assert printed("python.safetensors") == lines(theirs), printed("python.safetensors")
print("safetensors", safetensors.__version__, "reads and is read")
END
