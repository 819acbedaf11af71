"""Prints as JSON what pyarrow, DuckDB, polars and Hugging Face's datasets make of Parquet files; and TRL, where it is installed."""

import json
import sys
from pathlib import Path

import datasets
import duckdb
import polars
import pyarrow.parquet as pq

folder = Path(sys.argv[1])
datasets.disable_progress_bars()


def loaded(path: Path):
    kind = "parquet" if path.suffix == ".parquet" else "json"
    return datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=str(folder / "cache"))


def by_trl(dataset):
    """The form that TRL sees in a dataset, and what a chat template makes of its first row."""
    try:
        from trl.data_utils import is_conversational
    except ImportError:
        return None
    return bool(is_conversational(dataset[0]))


report = {}
for path in sorted(folder.iterdir()):
    if path.suffix not in (".parquet", ".jsonl"):
        continue
    dataset = loaded(path)
    report[path.name] = {"datasets": dataset.to_list(), "trl": by_trl(dataset)}
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        table.validate(full=True)
        query = duckdb.sql(f"select * from '{path}'")
        report[path.name] |= {
            "types": {field.name: str(field.type) for field in table.schema},
            "metadata": {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()},
            "pyarrow": table.to_pylist(),
            "duckdb": [dict(zip(query.columns, row)) for row in query.fetchall()],
            "polars": polars.read_parquet(path).to_dicts(),
        }
json.dump(report, sys.stdout)
