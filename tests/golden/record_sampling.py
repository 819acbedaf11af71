#!/usr/bin/env python3
"""Records which tokens the filters of `transformers` leave to sample from.

`sampling-candidates.json` beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.15.0 transformers==5.23.0
    /tmp/venv/bin/python tests/golden/record_sampling.py

``logits`` are rows of a flat, a usual and a peaked distribution over 60 tokens. Each
of ``cases`` has the settings of `generate` (topK 0, topP 1 and minP 0 are off) and,
for each row, the ``candidates``: the tokens whose score is not -infinity after the
warpers that `generate` makes of the settings, and the ``logprob`` of its first token
and the ``entropy`` under the softmax of their scores.
"""

import json
from pathlib import Path

import torch
from transformers import (
    GenerationConfig, LlamaConfig, LlamaForCausalLM, LogitsProcessorList, MinPLogitsWarper, TemperatureLogitsWarper,
    TopKLogitsWarper, TopPLogitsWarper)

torch.manual_seed(5)
logits = torch.randn(3, 60) * torch.tensor([[0.2], [2.0], [6.0]])
cases = []
for temperature, top_k, top_p, min_p in [
    (1.0, 5, 1.0, 0.0), (1.3, 1, 1.0, 0.0), (0.7, 59, 1.0, 0.0), (1.0, 60, 1.0, 0.0), (1.0, 400, 0.5, 0.0),
    (1.0, 0, 0.9, 0.0), (0.6, 0, 0.95, 0.0), (1.3, 0, 0.3, 0.0), (1.0, 0, 0.999, 0.0), (1.0, 0, 0.001, 0.0),
    (1.0, 0, 1.0, 0.1), (2.0, 0, 1.0, 0.02), (1.0, 0, 1.0, 1.0),
    (1.3, 20, 0.8, 0.0), (0.8, 12, 0.9, 0.05), (1.5, 0, 0.7, 0.3), (1.0, 30, 1.0, 0.5), (1.3, 10, 0.5, 0.01),
]:
    settings = GenerationConfig(
        do_sample=True, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p or None)
    tiny = LlamaForCausalLM(LlamaConfig(
        vocab_size=60, hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1))
    warpers = tiny._get_logits_processor(
        generation_config=settings, input_ids_seq_length=1, encoder_input_ids=None,
        prefix_allowed_tokens_fn=None, logits_processor=LogitsProcessorList())
    known = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper)
    assert all(isinstance(warper, known) for warper in warpers), warpers
    scores = warpers(torch.zeros(3, 1, dtype=torch.long), logits.clone())
    rows = []
    for row in scores:
        log_p = torch.log_softmax(row.double(), -1)
        candidates = row.isfinite().nonzero()[:, 0]
        rows.append({
            "candidates": candidates.tolist(),
            "logprob": log_p[candidates[0]].item(),
            "entropy": -(log_p.exp() * log_p)[candidates].sum().item(),
        })
    cases.append({"temperature": temperature, "topK": top_k, "topP": top_p, "minP": min_p, "rows": rows})

path = Path(__file__).parent / "sampling-candidates.json"
path.write_text(json.dumps({"logits": [[round(x, 9) for x in row] for row in logits.tolist()], "cases": cases}) + "\n")
