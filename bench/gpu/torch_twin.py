#!/usr/bin/env python3
"""What torch does on the same GPU in f32, for the part `torch` of `npm run gpu`: products, PPO updates and training steps of language models.

    python3 bench/gpu/torch_twin.py [full|small]

Eager, as most users write it: autograd, fused Adam, clipped gradients; TF32 is off, as WebGPU has none. The data is on the GPU already: torch
sends and reads nothing that is timed but the loss. Prints one line of JSON. Needs torch, and transformers for the language models.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

SIZE = sys.argv[1] if len(sys.argv) > 1 else "full"
if not torch.cuda.is_available() and SIZE == "full":
    sys.exit("torch finds no GPU")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cuda.matmul.allow_tf32 = False
torch.manual_seed(1)
PASSES, MINIBATCHES = 4, 4
PRODUCTS = {"full": [256, 512, 1024, 2048, 4096], "small": [64]}[SIZE]
UPDATES = {
    "full": [(width, rows) for width in (64, 512) for rows in (1024, 4096, 16384, 65536)] + [(1024, 4096), (1024, 16384)],
    "small": [(16, 256)],
}[SIZE]
# Width, layers, heads, tokens of a sequence, and sequences of a step: as bench/gpu/language.ts has them.
MODELS = {
    "full": [
        (64, 2, 4, 33, (64, 1024)),
        (256, 4, 4, 129, (16, 128)),
        (512, 8, 8, 257, (8, 64)),
        (768, 16, 12, 257, (8, 32)),
    ],
    "small": [(16, 1, 2, 17, (4,))],
}[SIZE]
VOCABULARY, REPEATS = 263, 4


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def median_seconds(call):
    """The first call does not count: kernels are chosen and memory is taken there."""
    seconds = []
    for _ in range(REPEATS + 1):
        wait()
        start = time.perf_counter()
        call()
        wait()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds[1:])[REPEATS // 2]


def product(n):
    a, b = torch.randn(n, n, device=DEVICE), torch.randn(n, n, device=DEVICE)
    calls = max(1, int(2e11 / n**3)) if SIZE == "full" else 1

    def call():
        for _ in range(calls):
            torch.mm(a, b)

    return {"size": n, "gflops": 2 * n**3 * calls / median_seconds(call) / 1e9}


def mlp(width, outputs):
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs)).to(DEVICE)


def update(width, rows):
    """CartPole's networks: one for two actions and one for the value. Four passes of four shuffled minibatches."""
    actor, critic = mlp(width, 2), mlp(width, 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    adam = torch.optim.Adam(parameters, lr=2.5e-4, eps=1e-5, fused=True)
    seen, old, advantage, target = (torch.randn(rows, k, device=DEVICE) for k in (4, 1, 1, 1))
    old, advantage, target = -old[:, 0].abs(), advantage[:, 0], target[:, 0]
    action = torch.randint(2, (rows,), device=DEVICE)

    def call():
        for _ in range(PASSES):
            for at in torch.randperm(rows, device=DEVICE).chunk(MINIBATCHES):
                drawn = advantage[at]
                drawn = (drawn - drawn.mean()) / (drawn.std() + 1e-8)
                logprobs = F.log_softmax(actor(seen[at]), -1)
                ratio = (logprobs.gather(1, action[at, None])[:, 0] - old[at]).exp()
                policy = torch.maximum(-drawn * ratio, -drawn * ratio.clamp(0.8, 1.2)).mean()
                value = 0.5 * (critic(seen[at])[:, 0] - target[at]).square().mean()
                entropy = -(logprobs.exp() * logprobs).sum(-1).mean()
                adam.zero_grad()
                (policy + 0.5 * value - 0.01 * entropy).backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                adam.step()

    return {"policy": f"mlp {width}-{width}", "rows": rows, "rowsPerSecond": rows / median_seconds(call)}


def language(width, layers, heads, length, batch):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=length + 8,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).to(DEVICE).train()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(VOCABULARY, (batch, length), device=DEVICE)

    def call():
        adam.zero_grad()
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        loss.item()

    size = sum(parameter.numel() for parameter in model.parameters())
    return {"width": width, "millions": size / 1e6, "tokens": batch * length, "tokensPerSecond": batch * length / median_seconds(call)}


rows = [product(n) for n in PRODUCTS] + [update(*cell) for cell in UPDATES]
try:
    rows += [language(*shape, batch) for *shape, batches in MODELS for batch in batches]
except ImportError as error:
    rows.append({"policy": f"language models: {error}"})
print(json.dumps({"version": f"torch {torch.__version__}", "device": DEVICE, "rows": rows}))
