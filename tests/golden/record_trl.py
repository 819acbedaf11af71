#!/usr/bin/env python3
"""Records advantages, losses and gradients of TRL's own code on a small random batch.

The data beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install trl==1.16.0 torch transformers
    /tmp/venv/bin/python tests/golden/record_trl.py

(the JSON repeats its versions and command).

How to read the numbers:

* ``batch`` has N completions in groups of ``group_size``, one after the other. Its token columns are ragged: the tokens of
  completion i are ``offsets[i]`` to ``offsets[i + 1]``. ``reward`` is null where every reward function returned None.
  Inputs are 32-bit floats, exactly; everything is computed in 64 bits.
* ``advantages`` are by ``scale_rewards``, as the lines of ``GRPOTrainer._generate_and_score_completions`` compute them: the
  statements from ``mean_grouped_rewards = …`` to ``advantages = torch.nan_to_num(…)`` are taken out of its source and run.
  ``rloo`` are those of ``RLOOTrainer``.
* ``cases`` are calls of ``GRPOTrainer._compute_loss`` (for ``rloo``: ``RLOOTrainer``'s), whose model is replaced by the
  logprobs of the batch. ``arguments`` are those of its configuration that differ from the defaults that are listed in
  ``loss_of``. ``gradient`` is by the logprob of each token. Rewards of these cases are all known.
"""

import collections
import importlib.metadata
import inspect
import json
import platform
import textwrap
import types
from pathlib import Path

import numpy as np
import torch
from trl.trainer import grpo_trainer, rloo_trainer

COMMAND = "python tests/golden/record_trl.py"
HERE = Path(__file__).resolve().parent
GROUP_SIZE = 4
MAX_COMPLETION_LENGTH = 12


def f32(values):
    return torch.tensor(np.asarray(values, dtype=np.float32).astype(np.float64))


def make_batch():
    rng = np.random.default_rng(7)
    lengths = [1, 9, 3, 12, 5, 2, 7, 4, 6, 8, 1, 10]
    total = sum(lengths)
    logprob = -rng.exponential(1.0, total)
    old = logprob + rng.normal(0, 0.3, total)
    reward = [1.0, 0.0, 0.0, 0.25, 0.5, 0.5, 0.5, 0.5, -1.0, 2.0, 0.5, 1.5]
    return {
        "offsets": np.concatenate([[0], np.cumsum(lengths)]).tolist(),
        "reward": reward,
        "logprob": f32(logprob),
        "entropy": f32(rng.exponential(1.0, total)),
        "oldLogprob": f32(old),
        "behaviorLogprob": f32(old + rng.normal(0, 0.4, total)),
        "referenceLogprob": f32(logprob + rng.normal(0, 0.5, total)),
    }


def advantages_of(function, rewards, first, last, **settings):
    """Runs the statements between two marks of a method's source on our rewards."""
    lines = inspect.getsource(function).splitlines()
    begin = next(i for i, line in enumerate(lines) if line.strip().startswith(first))
    end = next(i for i, line in enumerate(lines) if i > begin and line.strip().startswith(last))
    indent = len(lines[begin]) - len(lines[begin].lstrip())
    chosen = []
    for line in lines[begin : end + 1]:
        if line.strip().startswith(("elif self.multi_objective_aggregation", "else:")) and indent > len(line) - len(line.lstrip()):
            break
        chosen.append(line)
    if chosen[-1] is not lines[end]:
        chosen.append(" " * indent + lines[end].strip())
    scope = dict(vars(inspect.getmodule(function)))
    scope.update(rewards=rewards, num_generations=GROUP_SIZE, self=types.SimpleNamespace(**settings))
    exec(textwrap.dedent("\n".join(chosen)), scope)
    return scope["advantages"]


def group_advantages(rewards, scale_rewards):
    return advantages_of(
        grpo_trainer.GRPOTrainer._generate_and_score_completions,
        rewards,
        "mean_grouped_rewards =",
        "advantages = torch.nan_to_num",
        scale_rewards=scale_rewards,
    )


def rloo_advantages(rewards):
    return advantages_of(
        rloo_trainer.RLOOTrainer._generate_and_score_completions,
        rewards,
        "grouped_rewards =",
        "advantages = torch.nan_to_num",
        normalize_advantages=False,
    )


def padded(batch, name):
    offsets = batch["offsets"]
    rows = torch.zeros(len(offsets) - 1, MAX_COMPLETION_LENGTH, dtype=torch.float64)
    for i, (first, end) in enumerate(zip(offsets, offsets[1:])):
        rows[i, : end - first] = batch[name][first:end]
    return rows


def ragged(batch, rows):
    offsets = batch["offsets"]
    return [float(x) for i, (a, b) in enumerate(zip(offsets, offsets[1:])) for x in rows[i, : b - a]]


def loss_of(batch, advantages, trainer=grpo_trainer.GRPOTrainer, ratio=None, **arguments):
    settings = {
        "loss_type": "grpo",
        "importance_sampling_level": "token",
        "beta": 0.0,
        "epsilon": 0.2,
        "epsilon_high": 0.2,
        "delta": None,
        "use_bias_correction_kl": True,
        "sapo_temperature_pos": 1.0,
        "sapo_temperature_neg": 1.05,
        **arguments,
    }
    lengths = torch.tensor(np.diff(batch["offsets"]))
    mask = (torch.arange(MAX_COMPLETION_LENGTH)[None, :] < lengths[:, None]).long()
    logprob = padded(batch, "logprob").requires_grad_()
    accelerator = types.SimpleNamespace(
        num_processes=1,
        sync_gradients=True,
        gather=lambda x: x,
        gather_for_metrics=lambda x: x,
        reduce=lambda x, reduction: x,
    )
    itself = types.SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprob, padded(batch, "entropy"), None),
        _metrics={"train": collections.defaultdict(list)},
        _entropy_bonus_enabled=False,
        accelerator=accelerator,
        args=types.SimpleNamespace(steps_per_generation=1, **settings),
        aux_loss_enabled=False,
        beta=settings["beta"],
        current_gradient_accumulation_steps=1,
        epsilon_low=settings["epsilon"],
        epsilon_high=settings["epsilon_high"],
        importance_sampling_level=settings["importance_sampling_level"],
        loss_type=settings["loss_type"],
        max_completion_length=MAX_COMPLETION_LENGTH,
        model=types.SimpleNamespace(training=True),
        off_policy_mask_threshold=None,
        top_entropy_quantile=1.0,
        use_vllm=ratio is not None,
        vllm_importance_sampling_correction=True,
    )
    ids = torch.zeros_like(mask)
    old = padded(batch, "oldLogprob")
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1] + 1,
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": old,
        "old_logps": (old * mask).sum(1),
        "ref_per_token_logps": padded(batch, "referenceLogprob"),
        "num_items_in_batch": mask.sum(),
        "importance_sampling_ratio": ratio,
    }
    loss = trainer._compute_loss(itself, None, inputs)
    loss.backward()
    return {"loss": float(loss.detach()), "gradient": ragged(batch, logprob.grad)}


def main():
    batch = make_batch()
    known = torch.tensor(batch["reward"], dtype=torch.float64)
    some = known.clone()
    some[[1, 8, 9, 10]] = torch.nan  # One unknown in the first group; the third has only one known.
    advantages = [
        {
            "reward": [None if torch.isnan(r) else float(r) for r in rewards],
            **{scale: group_advantages(rewards, scale).tolist() for scale in ("group", "batch", "none")},
            "rloo": rloo_advantages(rewards).tolist(),
        }
        for rewards in (known, some)
    ]
    by_group = group_advantages(known, "group")
    centred = group_advantages(known, "none")
    mask = padded({**batch, "ones": torch.ones(batch["offsets"][-1], dtype=torch.float64)}, "ones")
    # GRPOTrainer's sequence_mask with its default bound of 3.
    ratio = torch.exp(((padded(batch, "oldLogprob") - padded(batch, "behaviorLogprob")) * mask).sum(1, keepdim=True))
    ratio = ratio.masked_fill(ratio > 3.0, 0.0)
    calls = {
        "grpo": (by_group, {}),
        "grpo with a KL penalty": (by_group, {"beta": 0.04}),
        "grpo with an uncorrected KL penalty": (by_group, {"beta": 0.04, "use_bias_correction_kl": False}),
        "grpo with delta": (by_group, {"delta": 1.5}),
        "dr_grpo": (centred, {"loss_type": "dr_grpo"}),
        "dapo": (by_group, {"loss_type": "dapo", "epsilon_high": 0.28}),
        "cispo": (by_group, {"loss_type": "cispo", "epsilon_high": 5.0}),
        "sapo": (by_group, {"loss_type": "sapo"}),
        "gspo": (
            by_group,
            {"importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
        ),
    }
    cases = {name: {"arguments": given, **loss_of(batch, a, **given)} for name, (a, given) in calls.items()}
    cases["grpo with sequence_mask"] = {"arguments": {}, **loss_of(batch, by_group, ratio=ratio)}
    rloo = loss_of(batch, rloo_advantages(known), trainer=rloo_trainer.RLOOTrainer)
    cases["rloo"] = {"arguments": {}, **rloo}
    document = {
        "command": COMMAND,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("trl", "torch", "transformers")},
        },
        "group_size": GROUP_SIZE,
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "batch": {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in batch.items()},
        "advantages": advantages,
        "cases": cases,
    }
    (HERE / "trl-losses.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
