#!/usr/bin/env python3
"""Records the angles of RoPE's scalings that depend on more than the position, by `transformers`.

`rope-angles.json` beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.15.0 transformers==5.23.0
    /tmp/venv/bin/python tests/golden/record_rope.py

Each case is a `config.json`, the context (the length of the text that the model is asked about), some positions, and for each of
them the cosines and sines, one for each pair of a head's turned elements.
"""

import json
from pathlib import Path

import torch
from transformers import LlamaConfig, Phi3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

SIZE = dict(vocab_size=8, hidden_size=48, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 64,
        "short_factor": [1 + 0.1 * k for k in range(9)], "long_factor": [1 + 1.5 * k for k in range(9)]}
CASES = [
    (LlamaConfig, LlamaRotaryEmbedding, 2048, 2048, YARN),
    (LlamaConfig, LlamaRotaryEmbedding, 2048, 2048, {**YARN, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False}),
    (LlamaConfig, LlamaRotaryEmbedding, 2048, 2048, {**YARN, "attention_factor": 0.9}),
    (LlamaConfig, LlamaRotaryEmbedding, 2048, 2048, {**YARN, "mscale": 0.7, "mscale_all_dim": 0.4}),
    (LlamaConfig, LlamaRotaryEmbedding, 64, 40, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}),
    (LlamaConfig, LlamaRotaryEmbedding, 64, 300, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}),
    (Phi3Config, Phi3RotaryEmbedding, 512, 60, LONG),
    (Phi3Config, Phi3RotaryEmbedding, 512, 300, LONG),
    (Phi3Config, Phi3RotaryEmbedding, 512, 300, {**LONG, "attention_factor": 1.3}),
]

cases = []
for make, rotary, positions_max, context, rope in CASES:
    others = {"original_max_position_embeddings": 64} if make is Phi3Config else {}
    config = make(**SIZE, **others, max_position_embeddings=positions_max, pad_token_id=None, rope_parameters=dict(rope))
    cosine, sine = rotary(config)(torch.zeros(1), torch.arange(context)[None])
    positions = [0, 1, 17, context - 1]
    half = cosine.shape[-1] // 2
    cases.append({
        "config": {"model_type": config.model_type, **SIZE, **others, "max_position_embeddings": positions_max,
                   "rope_parameters": rope},
        "context": context, "positions": positions,
        "cosine": [cosine[0, p, :half].tolist() for p in positions],
        "sine": [sine[0, p, :half].tolist() for p in positions],
    })
(Path(__file__).parent / "rope-angles.json").write_text(json.dumps(cases) + "\n")
