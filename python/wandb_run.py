"""A run folder of Colonnade as an offline run of Weights & Biases, which `wandb sync` uploads:

    python wandb_run.py runs/mine --project mine
    wandb sync wandb/offline-run-…

Each line of metrics.jsonl becomes a step, with the names that loggers have (`phaseSeconds/step`); config.json becomes the config, and
summary.json the summary. Needs wandb; nothing is sent by this file.
"""

import argparse
import json
from pathlib import Path


def flat(values, prefix=""):
    """The numbers of nested objects, by names like `phaseSeconds/step`. Lists are left out, and so is what nobody can tell (null)."""
    found = {}
    for key, value in values.items():
        name = f"{prefix}/{key}" if prefix else key
        if isinstance(value, dict):
            found.update(flat(value, name))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return found


def main():
    parser = argparse.ArgumentParser(description="Writes a run folder of Colonnade as an offline run of Weights & Biases.")
    parser.add_argument("run", type=Path, help="a folder with config.json and metrics.jsonl")
    parser.add_argument("--project", required=True)
    parser.add_argument("--name", help="default: the folder's name")
    parser.add_argument("--dir", type=Path, default=Path("."), help="where wandb/ is written")
    given = parser.parse_args()
    for name in ("config.json", "metrics.jsonl"):
        if not (given.run / name).is_file():
            parser.error(f"got {given.run}, which has no {name}, expected the folder of a run")
    import wandb

    config = json.loads((given.run / "config.json").read_text())
    name = given.name or given.run.resolve().name
    with wandb.init(project=given.project, name=name, dir=given.dir, config=config, mode="offline") as written:
        with (given.run / "metrics.jsonl").open() as lines:
            for step, line in enumerate(lines, 1):
                if not line.endswith("\n"):
                    break  # It is being written.
                written.log(flat(json.loads(line)), step=step)
        summary = given.run / "summary.json"
        if summary.is_file():
            for name, value in flat(json.loads(summary.read_text())).items():
                written.summary[name] = value
        print(written.settings.sync_dir)


if __name__ == "__main__":
    main()
