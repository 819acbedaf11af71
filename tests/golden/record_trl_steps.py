#!/usr/bin/env python3
"""Records six optimizer steps that TRL makes with its own defaults: the weights after them, and the norms that it clipped.

The files `trl/steps.json` and `trl/steps.safetensors` beside this file were made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install trl==1.16.0 torch==2.15.0 transformers==5.23.0
    /tmp/venv/bin/python tests/golden/record_trl_steps.py

(the JSON repeats the versions and the command). All cases begin with the model in `trl/`, which `record_trl_model.py` made:

* ``sft``: ``SFTTrainer.train()`` over one batch of eight examples, with the defaults of SFTConfig: AdamW with ε 1e-8, a
  learning rate of 2e-5 that falls in a straight line, no weight decay, gradients clipped to a norm of 1;
* ``sft with other settings``: the same with another β₁, β₂ and ε, another norm, and weight decay, which transformers keeps
  from norms and biases;
* ``grpo``: the loss of ``batch.json`` by ``GRPOTrainer._compute_loss``, and the optimizer, schedule and clipping that the
  trainer makes of the defaults of GRPOConfig (a learning rate of 1e-6).
"""

import importlib.metadata
import json
import platform
import tempfile

import torch
from datasets import Dataset
from record_trl import GROUP_SIZE, group_advantages
from record_trl_model import COMPLETIONS, FOLDER, MAX_COMPLETION_LENGTH, PROMPTS, make_tokenizer, make_trainer
from safetensors.torch import save_file
from trl import SFTConfig, SFTTrainer

COMMAND = "python tests/golden/record_trl_steps.py"
STEPS = 6
CASES = {
    "sft": {},
    "sft with other settings": {
        "learning_rate": 3e-3, "weight_decay": 0.3, "max_grad_norm": 0.4, "adam_beta1": 0.8, "adam_beta2": 0.95,
        "adam_epsilon": 1e-3, "lr_scheduler_type": "constant",
    },
}
# fmt: off
EXAMPLES = [  # Prompts and completions.
    ([1, 4], [3, 3, 10]), ([2, 7, 5], [9, 10]), ([6], [8, 1, 1, 0, 10]), ([0, 9, 2, 2], [4, 10]),
    ([5, 5], [6, 7, 8, 10]), ([3], [2, 10]), ([8, 0, 1], [5, 4, 3, 2, 1, 10]), ([7, 6], [0, 10]),
]
# fmt: on


def settings_of(config):
    names = ["learning_rate", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm"]
    return {**{name: getattr(config, name) for name in names}, "lr_scheduler_type": str(config.lr_scheduler_type.value)}


def sft(arguments):
    config = SFTConfig(
        output_dir=tempfile.mkdtemp(), report_to="none", use_cpu=True, bf16=False, logging_steps=1, save_strategy="no",
        max_steps=STEPS, per_device_train_batch_size=len(EXAMPLES), completion_only_loss=True, **arguments,
    )
    rows = [
        {"input_ids": prompt + completion, "completion_mask": [0] * len(prompt) + [1] * len(completion)}
        for prompt, completion in EXAMPLES
    ]
    trainer = SFTTrainer(
        model=str(FOLDER), args=config, processing_class=make_tokenizer(), train_dataset=Dataset.from_list(rows)
    )
    assert next(trainer.model.parameters()).dtype == torch.float32
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    assert len(steps) == STEPS
    return trainer.model, {
        "settings": settings_of(config),
        "loss": [entry["loss"] for entry in steps],
        "gradNorm": [entry["grad_norm"] for entry in steps],
    }


def padded_batch(recorded):
    """The batch of `batch.json` as GRPOTrainer has it: prompts padded on the left, completions on the right."""
    count = len(recorded["reward"])
    width = max(PROMPTS)
    prompt_ids = torch.full((count, width), 11)
    completion_ids = torch.full((count, MAX_COMPLETION_LENGTH), 11)
    prompt_mask, completion_mask = torch.zeros_like(prompt_ids), torch.zeros_like(completion_ids)
    tool_mask = torch.zeros_like(completion_ids)
    old = torch.zeros(completion_ids.shape)
    for i in range(count):
        begin, length = recorded["offsets"][i], PROMPTS[i // GROUP_SIZE]
        middle, end = begin + length, recorded["offsets"][i + 1]
        assert end - middle == COMPLETIONS[i]
        prompt_ids[i, width - length :] = torch.tensor(recorded["token"][begin:middle])
        prompt_mask[i, width - length :] = 1
        completion_ids[i, : end - middle] = torch.tensor(recorded["token"][middle:end])
        completion_mask[i, : end - middle] = 1
        tool_mask[i, : end - middle] = torch.tensor(recorded["lossMask"][middle:end])
        old[i, : end - middle] = torch.tensor(recorded["oldLogprob"][middle:end])
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "tool_mask": tool_mask,
        "old_per_token_logps": old,
        "num_items_in_batch": tool_mask.sum(),
    }


def grpo():
    recorded = json.loads((FOLDER / "batch.json").read_text())
    batch = padded_batch(recorded)
    batch["advantages"] = group_advantages(torch.tensor(recorded["reward"]), "group")
    trainer = make_trainer({})
    trainer.current_gradient_accumulation_steps = 1
    trainer.create_optimizer_and_scheduler(STEPS)
    trainer.model.train()
    losses, norms = [], []
    for _ in range(STEPS):
        loss = trainer._compute_loss(trainer.model, batch)
        trainer.optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), trainer.args.max_grad_norm).item())
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        losses.append(loss.item())
    settings = {**settings_of(trainer.args), "loss_type": trainer.args.loss_type}
    return trainer.model, {"settings": settings, "loss": losses, "gradNorm": norms}


def main():
    weights, cases = {}, {}
    for name, arguments in CASES.items():
        model, cases[name] = sft(arguments)
        weights.update({f"{name}.{key}": value.detach().clone() for key, value in model.named_parameters()})
    model, cases["grpo"] = grpo()
    weights.update({f"grpo.{key}": value.detach().clone() for key, value in model.named_parameters()})
    lengths = [len(prompt) + len(completion) for prompt, completion in EXAMPLES]
    document = {
        "command": COMMAND,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("trl", "torch", "transformers")},
        },
        "steps": STEPS,
        "offsets": [0, *torch.tensor(lengths).cumsum(0).tolist()],
        "token": [token for prompt, completion in EXAMPLES for token in prompt + completion],
        "lossMask": [flag for prompt, completion in EXAMPLES for flag in [0] * len(prompt) + [1] * len(completion)],
        "cases": cases,
    }
    (FOLDER / "steps.json").write_text(json.dumps(document, indent=1) + "\n")
    save_file(weights, FOLDER / "steps.safetensors")


if __name__ == "__main__":
    main()
