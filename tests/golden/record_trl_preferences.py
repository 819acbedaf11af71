#!/usr/bin/env python3
"""Records what TRL's trainers make of pairs of answers: losses, metrics, and gradients by every weight.

The files `trl/preferences.json` and `trl/preferences.safetensors` beside this file were made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install trl==1.16.0 torch==2.15.0 transformers==5.23.0
    /tmp/venv/bin/python tests/golden/record_trl_preferences.py

(the JSON repeats the versions and the command); a folder as argument gets them instead. The reference is the model in `trl/`, which `record_trl_model.py` made. The
policy is the same model after the steps ``sft with other settings`` of `steps.safetensors`.

* ``pairs`` has prompts with a chosen and a rejected answer. ``answers`` has prompts with one answer, good (1) or bad (0), and
  the answer of another prompt, ``mismatched``, by which KTO estimates the KL divergence;
* ``cases`` are calls of the trainers' own methods with these arguments. ORPO's negative log-likelihood is over the tokens of
  all answers of a batch, so its loss is the mean of batches of one pair;
* ``reward`` is the loss of RewardTrainer for a model of the same layers with a score head, whose weight is in
  `preferences.safetensors`, with margins;
* `preferences.safetensors`: ``CASE.NAME`` is the gradient of the case's loss by the parameter NAME.
"""

import importlib.metadata
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from datasets import Dataset
from record_trl_model import FOLDER, VOCABULARY, make_tokenizer
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import KTOTrainer

COMMAND = "python tests/golden/record_trl_preferences.py"
PAD, END = VOCABULARY - 1, VOCABULARY - 2
# fmt: off
PAIRS = [  # Prompt, chosen answer, rejected answer, margin.
    ([1, 4], [3, 3, 10], [2, 10], 0.0), ([2, 7, 5], [9, 10], [9, 8, 1, 10], 0.5),
    ([6], [8, 1, 1, 0, 10], [8, 2, 10], 1.25), ([0, 9, 2, 2], [4, 10], [5, 10], -0.25),
    ([5, 5], [6, 7, 8, 10], [6, 7, 8, 9, 1, 1, 10], 2.0), ([3], [2, 10], [2, 2, 2, 10], 0.0),
]
ANSWERS = [  # Prompt, answer, whether it is good.
    ([1, 4], [3, 3, 10], 1), ([2, 7, 5], [9, 8, 1, 10], 0), ([6], [8, 1, 1, 0, 10], 1), ([0, 9, 2, 2], [5, 10], 0),
    ([3], [2, 10], 1),
]
# fmt: on
DPO = {
    "dpo": {"beta": 0.1},
    "dpo with another beta": {"beta": 0.7},
    "ipo": {"loss_type": ["ipo"], "beta": 0.3},
    "hinge": {"loss_type": ["hinge"], "beta": 0.5},
    "robust": {"loss_type": ["robust"], "beta": 0.5, "label_smoothing": 0.2},
}
KTO = {"kto": {"beta": 0.1}, "kto with weights": {"beta": 0.6, "desirable_weight": 1.5, "undesirable_weight": 0.8}}
CPO = {
    "simpo": {"loss_type": "simpo", "cpo_alpha": 0.0, "beta": 2.0, "simpo_gamma": 0.5},
    "simpo with smoothing": {
        "loss_type": "simpo", "cpo_alpha": 0.0, "beta": 1.3, "simpo_gamma": 0.2, "label_smoothing": 0.1,
    },
}
ORPO = {"orpo": {"beta": 0.1}, "orpo with another beta": {"beta": 0.8}}


def policy():
    model = AutoModelForCausalLM.from_pretrained(FOLDER).float()
    steps = load_file(FOLDER / "steps.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(steps[f"sft with other settings.{name}"])
    return model


def padded(sequences, value):
    width = max(map(len, sequences))
    return torch.tensor([sequence + [value] * (width - len(sequence)) for sequence in sequences])


def rows(examples, prefix=""):
    """Prompts with answers as the trainers' collators have them, padded on the right."""
    return {
        f"{prefix}input_ids": padded([prompt + answer for prompt, answer in examples], PAD),
        f"{prefix}attention_mask": padded([[1] * len(prompt + answer) for prompt, answer in examples], 0),
        f"{prefix}completion_mask": padded([[0] * len(prompt) + [1] * len(answer) for prompt, answer in examples], 0),
    }


def common(**arguments):
    return {
        "output_dir": tempfile.mkdtemp(), "report_to": "none", "use_cpu": True, "bf16": False,
        "gradient_checkpointing": False, "per_device_train_batch_size": 2, **arguments,
    }


def text_pairs():
    return Dataset.from_list([{"prompt": "1", "chosen": "2", "rejected": "3"}] * 4)


def metrics_of(trainer):
    return {key: value[-1] for key, value in trainer._metrics["train"].items() if key.startswith(("rewards/", "logps/", "kl"))}


def dpo(arguments):
    trainer = DPOTrainer(
        model=policy(), ref_model=AutoModelForCausalLM.from_pretrained(FOLDER).float(), args=DPOConfig(**common(**arguments)),
        processing_class=make_tokenizer(), train_dataset=text_pairs(),
    )
    trainer.model.train()
    batch = rows([(prompt, chosen) for prompt, chosen, _, _ in PAIRS] + [(prompt, no) for prompt, _, no, _ in PAIRS])
    loss = trainer._compute_loss(trainer.model, batch, False)
    return trainer.model, loss, metrics_of(trainer)


def kto(arguments):
    trainer = KTOTrainer(
        model=policy(), ref_model=AutoModelForCausalLM.from_pretrained(FOLDER).float(), args=KTOConfig(**common(**arguments)),
        processing_class=make_tokenizer(),
        train_dataset=Dataset.from_list([{"prompt": "1", "completion": "2", "label": i % 2 == 0} for i in range(4)]),
    )
    trainer.model.train()
    answers = [answer for _, answer, _ in ANSWERS]
    batch = {
        **rows([(prompt, answer) for prompt, answer, _ in ANSWERS]),
        **rows([(prompt, other) for (prompt, _, _), other in zip(ANSWERS, mismatched())], "KL_"),
        "label": torch.tensor([good == 1 for _, _, good in ANSWERS]),
    }
    loss = trainer._compute_loss(trainer.model, batch, False)
    return trainer.model, loss, metrics_of(trainer)


def mismatched():
    answers = [answer for _, answer, _ in ANSWERS]
    return answers[-1:] + answers[:-1]


def sides(pairs):
    batch = {}
    for side, answers in (("chosen", [pair[1] for pair in pairs]), ("rejected", [pair[2] for pair in pairs])):
        prompts = [pair[0] for pair in pairs]
        batch[f"{side}_input_ids"] = padded([p + a for p, a in zip(prompts, answers)], PAD)
        batch[f"{side}_attention_mask"] = padded([[1] * len(p + a) for p, a in zip(prompts, answers)], 0)
        batch[f"{side}_labels"] = padded([[-100] * len(p) + a for p, a in zip(prompts, answers)], -100)
    return batch


def without_reference(Trainer, Config, arguments, batches):
    trainer = Trainer(
        model=policy(), args=Config(**common(max_length=32, **arguments)), processing_class=make_tokenizer(),
        train_dataset=text_pairs(),
    )
    trainer.model.train()
    loss, total = 0, {}
    for pairs in batches:
        part, metrics = trainer.get_batch_loss_metrics(trainer.model, sides(pairs))
        loss = loss + part / len(batches)
        for key, value in metrics.items():
            total[key] = total.get(key, 0) + value / len(batches)
    return trainer.model, loss, {k: v for k, v in total.items() if k.startswith(("rewards/", "logps/"))}


def reward():
    torch.manual_seed(9)
    model = AutoModelForSequenceClassification.from_pretrained(FOLDER, num_labels=1, pad_token_id=PAD).float()
    trainer = RewardTrainer(
        model=model, args=RewardConfig(**common()), processing_class=make_tokenizer(), train_dataset=text_pairs()
    )
    trainer.model.train()
    with torch.no_grad():
        trainer.model.score.weight.copy_(0.4 * torch.randn_like(trainer.model.score.weight))
    batch = rows([(prompt, chosen) for prompt, chosen, _, _ in PAIRS] + [(prompt, no) for prompt, _, no, _ in PAIRS])
    del batch["completion_mask"]
    loss = trainer.compute_loss(trainer.model, {**batch, "margin": torch.tensor([margin for *_, margin in PAIRS])})
    metrics = {key: value[-1] for key, value in trainer._metrics["train"].items() if key in ("accuracy", "margin", "mean_reward")}
    return trainer.model, loss, metrics


def main():
    gradients, cases = {}, {}

    def record(name, arguments, made):
        model, loss, metrics = made
        loss.backward()
        cases[name] = {"arguments": arguments, "loss": loss.item(), "metrics": metrics}
        for parameter_name, parameter in model.named_parameters():
            gradients[f"{name}.{parameter_name}"] = parameter.grad.clone()
        return model

    for name, arguments in DPO.items():
        record(name, arguments, dpo(arguments))
    for name, arguments in KTO.items():
        record(name, arguments, kto(arguments))
    for name, arguments in CPO.items():
        record(name, arguments, without_reference(CPOTrainer, CPOConfig, arguments, [PAIRS]))
    for name, arguments in ORPO.items():
        record(name, arguments, without_reference(ORPOTrainer, ORPOConfig, arguments, [[pair] for pair in PAIRS]))
    model = record("reward", {}, reward())
    gradients["score"] = model.score.weight.detach().clone()
    document = {
        "command": COMMAND,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("trl", "torch", "transformers")},
        },
        "pairs": [{"prompt": p, "chosen": c, "rejected": r, "margin": m} for p, c, r, m in PAIRS],
        "answers": [
            {"prompt": p, "answer": a, "good": g, "mismatched": o} for (p, a, g), o in zip(ANSWERS, mismatched())
        ],
        "cases": cases,
    }
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    (out / "preferences.json").write_text(json.dumps(document, indent=1) + "\n")
    save_file(gradients, out / "preferences.safetensors")


if __name__ == "__main__":
    main()
