"""Logits that transformers' processors and torch change, with gradients by the logits before, from seeded numbers.

`logit-changes.json` beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.15.0 transformers==5.23.0
    /tmp/venv/bin/python tests/golden/record_logit_changes.py

Frequency and presence penalties are vLLM's formula (`apply_penalties`), since transformers
has none.
"""

import json
from pathlib import Path

import torch
import transformers
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor

SIZE = 50
generator = torch.Generator().manual_seed(31)


def case(repetition, frequency, presence, biases, prompt, answer):
    ids = torch.randint(0, SIZE, (1, prompt + answer), generator=generator)
    logits = (3 * torch.randn(1, SIZE, generator=generator)).requires_grad_()
    bias = {
        int(id): round(float(value), 3)
        for id, value in zip(
            torch.randperm(SIZE, generator=generator)[:biases], 4 * torch.randn(biases, generator=generator)
        )
    }
    changed = logits
    if bias:
        changed = SequenceBiasLogitsProcessor({(id,): value for id, value in bias.items()})(ids, changed)
    if repetition != 1:
        # Each id once: autograd of its scatter counts an id as often as it comes.
        changed = RepetitionPenaltyLogitsProcessor(repetition)(ids.unique()[None], changed)
    times = torch.bincount(ids[0, prompt:], minlength=SIZE).float()
    changed = changed - torch.tensor(frequency) * times
    changed = changed - torch.tensor(presence) * (times > 0)
    weights = torch.randn(1, SIZE, generator=generator)
    (changed * weights).sum().backward()
    return {
        "repetition": repetition,
        "frequency": frequency,
        "presence": presence,
        "bias": bias,
        "prompt": prompt,
        "ids": ids[0].tolist(),
        "logits": logits[0].tolist(),
        "changed": changed[0].tolist(),
        "weights": weights[0].tolist(),
        "gradient": logits.grad[0].tolist(),
    }


cases = [
    case(*given)
    for given in [
        (1, 0.0, 0.0, 6, 5, 3),
        (1.3, 0.0, 0.0, 0, 20, 10),
        (0.7, 0.0, 0.0, 0, 20, 10),
        (1, 0.5, 0.0, 0, 20, 40),
        (1, 0.0, 1.5, 0, 20, 40),
        (1, -1.25, -0.5, 0, 10, 30),
        (1.7, 0.3, 0.9, 12, 30, 30),
        (1.1, 0.01, 0.02, 12, 0, 90),
    ]
]
path = Path(__file__).parent / "logit-changes.json"
made = {"torch": torch.__version__, "transformers": transformers.__version__, "cases": cases}
path.write_text(json.dumps(made) + "\n")
