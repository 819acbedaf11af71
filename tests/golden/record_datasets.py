"""Records small datasets as pyarrow and Hugging Face's datasets write them, for tests/datasets.

pip install pyarrow==26.0.1 datasets==5.2.0
python record_datasets.py datasets
"""

import sys
import tempfile
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

out = Path(sys.argv[1])
out.mkdir(exist_ok=True)

questions = pa.table(
    {
        "question": [f"How many letters has {'a' * i}é?" for i in range(1, 8)],
        "answer": pa.array(range(2, 9), pa.int64()),
        "level": pa.array([1, None, 3, 4, 5, 6, 7], pa.int32()),
    }
)
for compression in ["none", "snappy", "gzip", "brotli", "zstd"]:
    pq.write_table(questions, out / f"questions-{compression}.parquet", compression=compression, row_group_size=3)
pq.write_table(
    pa.table({"prompt": ["a"], "answer": pa.array([2**60], pa.int64())}), out / "large.parquet", compression="snappy"
)

conversations = datasets.Dataset.from_list(
    [
        {
            "id": i,
            "messages": [
                {"role": "user", "content": f"{i} + 1"},
                {"role": "assistant", "content": str(i + 1)},
            ],
        }
        for i in range(3)
    ]
)
conversations.to_parquet(str(out / "conversations.parquet"))
preferences = datasets.Dataset.from_list(
    [
        {
            "prompt": f"{i} + 1",
            "chosen": [{"role": "user", "content": f"{i} + 1"}, {"role": "assistant", "content": str(i + 1)}],
            "rejected": [{"role": "user", "content": f"{i} + 1"}, {"role": "assistant", "content": str(i)}],
            "score_chosen": 8.5,
            "score_rejected": 2.0,
        }
        for i in range(3)
    ]
)
preferences.to_parquet(str(out / "preferences.parquet"))
with tempfile.TemporaryDirectory() as folder:
    conversations.save_to_disk(folder)
    (file,) = Path(folder).glob("*.arrow")
    (out / "conversations.arrow").write_bytes(file.read_bytes())
