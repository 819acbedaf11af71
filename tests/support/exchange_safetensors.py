"""Compares the f16 and bf16 of our file with the roundings of numpy and ml_dtypes, and writes a file of many types."""

import json
import sys

import ml_dtypes
import numpy as np
from safetensors import deserialize, safe_open
from safetensors.numpy import save_file

ours_path, theirs_path = sys.argv[1:]
NARROW = {"BF16": ml_dtypes.bfloat16, "F16": np.float16}

with safe_open(ours_path, framework="numpy") as file:
    metadata = file.metadata()
with open(ours_path, "rb") as file:
    ours = dict(deserialize(file.read()))


def differing(name: str) -> int:
    """Elements of ours that are not what numpy makes of the exact ones. NaN of any kind is NaN."""
    exact = np.frombuffer(ours[f"{name}.exact"]["data"], np.float32)
    got = np.frombuffer(ours[name]["data"], NARROW[name])
    wanted = exact.astype(NARROW[name])
    same = (got.view(np.uint16) == wanted.view(np.uint16)) | (np.isnan(got) & np.isnan(wanted))
    return int((~same).sum())


every = np.arange(65536, dtype=np.uint16).reshape(256, 256)
theirs = {
    "F16": every.view(np.float16),
    "F16.wide": every.view(np.float16).astype(np.float32),
    "BF16": every.view(ml_dtypes.bfloat16),
    "BF16.wide": every.view(ml_dtypes.bfloat16).astype(np.float32),
    "bool": np.array([True, False, True]),
    "i64": np.array([[-(2**63)], [2**63 - 1]], dtype=np.int64),
    "u64": np.array([2**64 - 1], dtype=np.uint64),
    "i16": np.array([-32768], dtype=np.int16),
    "u16": np.array([65535], dtype=np.uint16),
    "i8": np.array([-128], dtype=np.int8),
    "scalar": np.array(0.1),
    "empty": np.zeros((0, 2), dtype=np.float32),
}
save_file(theirs, theirs_path, {"made": "in Python"})

json.dump(
    {
        "metadata": metadata,
        "shapes": {name: ours[name]["shape"] for name in NARROW},
        "differing": {name: differing(name) for name in NARROW},
    },
    sys.stdout,
)
