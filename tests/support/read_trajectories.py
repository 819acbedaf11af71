"""Prints as JSON what pyarrow and Hugging Face's datasets make of a file of trajectories, and of its samples as JSONL."""

import json
import sys

import datasets
import pyarrow as pa
import pyarrow.ipc as ipc

path, samples, cache = sys.argv[1:]
datasets.disable_progress_bars()

with ipc.open_file(path) as reader:
    table: pa.Table = reader.read_all()
table.validate(full=True)
loaded = datasets.load_dataset("arrow", data_files=path, split="train", cache_dir=cache)
exported = datasets.load_dataset("json", data_files=samples, split="train", cache_dir=cache)

json.dump(
    {
        "pyarrow": {
            "types": {field.name: str(field.type) for field in table.schema},
            "nullable": [field.name for field in table.schema if field.nullable],
            "metadata": {key.decode(): value.decode() for key, value in table.schema.metadata.items()},
            "rows": table.to_pylist(),
        },
        "datasets": {"columns": loaded.column_names, "rows": loaded.to_list()},
        "samples": exported.to_list(),
    },
    sys.stdout,
)
