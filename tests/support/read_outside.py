"""Prints as JSON what Python's readers make of two Arrow files, an Arrow stream and a safetensors file."""

import hashlib
import json
import sys

import duckdb
import polars
import pyarrow as pa
import pyarrow.ipc as ipc
from safetensors.numpy import load_file


def of_arrow(table: pa.Table) -> dict:
    """Types, metadata, and columns as lists."""
    return {
        "rows": table.num_rows,
        "types": {field.name: str(field.type) for field in table.schema},
        "nullable": [field.name for field in table.schema if field.nullable],
        "metadata": {key.decode(): value.decode() for key, value in table.schema.metadata.items()},
        "columns": table.to_pydict(),
    }


file_path, stream_path, rollout_path, safetensors_path = sys.argv[1:]

with ipc.open_file(file_path) as reader:
    file = reader.read_all()
    batches = reader.num_record_batches
with ipc.open_file(rollout_path) as reader:
    rollout = reader.read_all()
rollout.validate(full=True)
file.validate(full=True)
with ipc.open_stream(stream_path) as reader:
    stream = reader.read_all()
stream.validate(full=True)

frame = polars.read_ipc(file_path)

relation = duckdb.from_arrow(file)
duck = {
    "types": dict(zip(relation.columns, map(str, relation.types))),
    "rows": relation.aggregate("count(*)").fetchall()[0][0],
    "sums": duckdb.sql(
        "select sum(reward), sum(terminated), sum(truncated), sum(valid), max(step), max(lane), sum(action),"
        " sum(observation[1]::double) from relation"
    ).fetchall()[0],
}

tensors = load_file(safetensors_path)

json.dump(
    {
        "file": {**of_arrow(file), "batches": batches},
        "stream": of_arrow(stream),
        "rollout": of_arrow(rollout),
        "polars": {
            "rows": frame.height,
            "types": {name: str(kind) for name, kind in frame.schema.items()},
            "columns": frame.to_dict(as_series=False),
        },
        "duckdb": duck,
        "tensors": {
            name: {
                "type": str(array.dtype),
                "shape": array.shape,
                "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
                "first": array.flatten()[:4].tolist(),
            }
            for name, array in tensors.items()
        },
    },
    sys.stdout,
    default=str,
)
