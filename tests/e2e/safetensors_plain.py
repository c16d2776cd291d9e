"""safetensors_plain.py -- the safetensors format read and written with nothing but Python itself, from its description
alone: 8 bytes, little-endian, with the length of a JSON header; the header: name -> dtype, shape, data_offsets [begin, end)
from the end of the header; the data, without holes. In: paths. Out: { name: (dtype, shape, bytes) }."""
import json
import struct

WIDTHS = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
          "U8": 1, "U16": 2, "U32": 4, "BOOL": 1}


def read(path):
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=unique)
        data = file.read()
    header.pop("__metadata__", None)
    assert (8 + length) % 64 == 0, (path, "the data are not aligned")
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        assert entry.keys() == {"dtype", "shape", "data_offsets"}, (path, name, entry)
        first, last = entry["data_offsets"]
        count = WIDTHS[entry["dtype"]]
        for extent in entry["shape"]:
            count *= extent
        assert first == end and last - first == count, (path, name, "a hole, an overlap, or a wrong size")
        assert first % WIDTHS[entry["dtype"]] == 0, (path, name, "its elements are not aligned")
        tensors[name] = (entry["dtype"], entry["shape"], data[first:last])
        end = last
    assert end == len(data), (path, "bytes behind the last tensor")
    return tensors


def unique(pairs):
    assert len({key for key, _ in pairs}) == len(pairs), "a name stands there twice"
    return dict(pairs)


def write(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
