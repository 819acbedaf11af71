#!/usr/bin/env python3
"""Layers and a whole PPO update by torch and by JAX, in f32, on so many threads.

    python bench/peers/widths.py --threads 1

Reads requests, a line each, `torch|jax product|forward|backward|update ROWS WIDTH CALLS`, and answers each with one JSON line: mean
seconds of a call, and a sum of the first call's results to compare.

    product   c (rows x width) = a (rows x width) . b (width x width)
    forward   y = tanh(a . b + bias)
    backward  of that: dy . b' times 1 - a^2, a' . dy, and the sum of dy
    update    one update of PPO of the network 4 -> width -> width -> (2 + 1), as bench/kernels/twin.c has it

Elements are those of the linear congruential generator of bench/kernels/network.ts. In JAX the calls are one compiled loop, in which
each takes what the one before has made; its compilation is not timed. In torch an update is as its users write it: eager, with
autograd and its fused Adam.
"""

import argparse
import json
import os
import sys
import time
from functools import lru_cache, partial

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, required=True)
THREADS = parser.parse_args().threads
# Before they are imported: they begin their threads then.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-THREADS:])

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(THREADS)
PERIOD = 4096
INPUTS, CHOICES, BLOCK = 4, 2, 256
ROWS = [16, 256, 8192]  # As in updates.ts: drawn in this order.


class Numbers:
    """The generator's numbers, in order."""

    def __init__(self):
        self.state = 1

    def units(self, count):
        """The next `count` numbers, uniform in [0, 1)."""
        first = np.empty(min(count, PERIOD), np.uint64)
        for i in range(len(first)):
            self.state = (self.state * 1664525 + 1013904223) % 2**32
            first[i] = self.state
        multiplier, increment = 1, 0
        for _ in range(PERIOD):
            multiplier, increment = multiplier * 1664525 % 2**32, (increment * 1664525 + 1013904223) % 2**32
        parts = [first]
        while len(parts) * PERIOD < count:
            parts.append((parts[-1] * np.uint64(multiplier) + np.uint64(increment)) % np.uint64(2**32))
        states = np.concatenate(parts)[:count]
        self.state = int(states[-1])
        return ((states >> np.uint64(8)).astype(np.float32)) / np.float32(16777216)

    def uniform(self, low, high, count):
        low, high = np.float32(low), np.float32(high)
        return low + (high - low) * self.units(count)


def repeated(count):
    """As in layers.ts: the first numbers on -1 ... 1, again and again."""
    return np.resize(Numbers().uniform(-1, 1, PERIOD), count)


@lru_cache(maxsize=4)
def operands(rows, width):
    return repeated(rows * width).reshape(rows, width), repeated(width * width).reshape(width, width)


def jax_product(a, b, x, _):
    return (x @ b) * (1 / b.shape[0])


def jax_forward(a, b, x, _):
    return jnp.tanh(x @ b + b[0])


def jax_backward(a, b, x, kept):
    weights, bias = kept
    dx = (x @ b.T) * (1 - a * a)
    return dx * (1 / b.shape[0]), (weights + a.T @ x, bias + x.sum(0))


@partial(jax.jit, static_argnums=(0, 3))
def chain(what, a, b, calls):
    if what == "backward":
        kept = (jnp.zeros_like(b), jnp.zeros_like(b[0]))
        return jax.lax.fori_loop(0, calls, lambda _, state: jax_backward(a, b, *state), (a, kept))
    step = jax_product if what == "product" else jax_forward
    return jax.lax.fori_loop(0, calls, lambda _, x: step(a, b, x, None), a), None


def jax_layer(what, rows, width, calls):
    a, b = map(jax.device_put, operands(rows, width))
    x, kept = chain(what, a, b, 1)
    scale = 1 if what == "forward" else width
    total = float(np.asarray(x, np.float64).sum() * scale)
    if kept is not None:
        total += sum(float(np.asarray(part, np.float64).sum()) for part in kept)
    jax.block_until_ready(chain(what, a, b, calls))
    begin = time.perf_counter()
    jax.block_until_ready(chain(what, a, b, calls))
    return (time.perf_counter() - begin) / calls, total


def torch_layer(what, rows, width, calls):
    a, b = map(torch.from_numpy, operands(rows, width))
    into, weights, bias = torch.empty(rows, width), torch.zeros(width, width), torch.zeros(width)

    def product():
        torch.mm(a, b, out=into)

    def forward():
        torch.addmm(b[0], a, b, out=into).tanh_()

    def backward():
        torch.mm(a, b.T, out=into).mul_(1 - a * a)
        weights.addmm_(a.T, a)
        bias.add_(a.sum(0))

    call = {"product": product, "forward": forward, "backward": backward}[what]
    call()
    total = sum(float(part.double().sum()) for part in (into, weights, bias))
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls, total


@lru_cache(maxsize=2)
def update_data(width):
    """Parameters and, of each number of rows, the minibatch."""
    numbers = Numbers()
    shapes = [(INPUTS, width), (width,), (width, width), (width,), (width, CHOICES), (CHOICES,), (width, 1), (1,)]
    flat = numbers.uniform(-0.2, 0.2, sum(int(np.prod(shape)) for shape in shapes))
    parameters = []
    for shape in shapes:
        size = int(np.prod(shape))
        parameters.append(flat[:size].reshape(shape))
        flat = flat[size:]
    numbers.units(BLOCK * width)
    made = {}
    for rows in ROWS:
        drawn = numbers.units(rows * (INPUTS + 4)).reshape(rows, INPUTS + 4)
        on = lambda x, low, high: (np.float32(low) + np.float32(high - low) * x).astype(np.float32)  # noqa: E731
        x = np.ascontiguousarray(on(drawn[:, :INPUTS], -1, 1))
        old, advantage, target = (on(drawn[:, INPUTS + i], low, high) for i, (low, high) in enumerate([(-1, -0.4), (-1, 1), (-1, 1)]))
        action = (drawn[:, INPUTS + 3] >= 0.5).astype(np.int64)
        made[rows] = (x, old, advantage, target, action)
    return parameters, made


def losses(log_softmax, where_clip, chosen, maximum, exp, tanh, parameters, x, old, drawback, target, action):
    w0, b0, w1, b1, wa, ba, wv, bv = parameters
    hidden = tanh(tanh(x @ w0 + b0) @ w1 + b1)
    logprobs = log_softmax(hidden @ wa + ba)
    value = (hidden @ wv + bv)[:, 0]
    entropy = -(exp(logprobs) * logprobs).sum(-1)
    ratio = exp(chosen(logprobs, action) - old)
    policy = maximum(drawback * ratio, drawback * where_clip(ratio))
    return (policy + 0.25 * (value - target) ** 2 - 0.01 * entropy).sum()


jax_losses = partial(
    losses,
    jax.nn.log_softmax,
    lambda ratio: jnp.clip(ratio, 0.8, 1.2),
    lambda logprobs, action: jnp.take_along_axis(logprobs, action[:, None], 1)[:, 0],
    jnp.maximum,
    jnp.exp,
    jnp.tanh,
)
torch_losses = partial(
    losses,
    lambda logits: torch.log_softmax(logits, -1),
    lambda ratio: ratio.clamp(0.8, 1.2),
    lambda logprobs, action: logprobs.gather(1, action[:, None])[:, 0],
    torch.maximum,
    torch.exp,
    torch.tanh,
)


def jax_step(data, state):
    parameters, first, second, count, _ = state
    x, old, advantage, target, action = data
    drawback = (advantage.mean() - advantage) / (advantage.std(ddof=1) + 1e-8)
    loss, gradients = jax.value_and_grad(lambda p: jax_losses(p, x, old, drawback, target, action) / len(x))(parameters)
    norm = jnp.sqrt(sum((g * g).sum() for g in gradients))
    scale = jnp.where(norm > 0.5, 0.5 / (norm + 1e-6), 1.0)
    gradients = [g * scale for g in gradients]
    count = count + 1
    first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients)]
    second = [0.999 * m + 0.001 * g * g for m, g in zip(second, gradients)]
    of_first, of_second = 1 - 0.9**count, 1 - 0.999**count
    parameters = [
        p - 1e-3 * (m / of_first) / (jnp.sqrt(s / of_second) + 1e-5) for p, m, s in zip(parameters, first, second)
    ]
    return parameters, first, second, count, loss * len(x) + norm


@partial(jax.jit, static_argnums=2)
def jax_updates(data, parameters, calls):
    zeros = [jnp.zeros_like(p) for p in parameters]
    state = (parameters, zeros, zeros, jnp.float32(0), jnp.float32(0))
    return jax.lax.fori_loop(0, calls, lambda _, state: jax_step(data, state), state)


def jax_update(rows, width, calls):
    parameters, made = update_data(width)
    parameters, data = jax.device_put(parameters), jax.device_put(made[rows])
    total = float(jax_updates(data, parameters, 1)[-1])
    jax.block_until_ready(jax_updates(data, parameters, calls))
    begin = time.perf_counter()
    jax.block_until_ready(jax_updates(data, parameters, calls))
    return (time.perf_counter() - begin) / calls, total


def torch_update(rows, width, calls):
    drawn, made = update_data(width)
    parameters = [torch.from_numpy(p.copy()).requires_grad_() for p in drawn]
    x, old, advantage, target, action = map(torch.from_numpy, made[rows])
    adam = torch.optim.Adam(parameters, lr=1e-3, eps=1e-5, fused=True)

    def call():
        drawback = (advantage.mean() - advantage) / (advantage.std() + 1e-8)
        adam.zero_grad()
        loss = torch_losses(parameters, x, old, drawback, target, action) / rows
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        adam.step()
        return loss, norm

    loss, norm = call()
    total = float(loss.detach()) * rows + float(norm)
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls, total


for line in sys.stdin:
    library, what, *sizes = line.split()
    rows, width, calls = map(int, sizes)
    if what == "update":
        seconds, total = (torch_update if library == "torch" else jax_update)(rows, width, calls)
    else:
        seconds, total = (torch_layer if library == "torch" else jax_layer)(what, rows, width, calls)
    version = torch.__version__ if library == "torch" else jax.__version__
    print(json.dumps({"seconds": seconds, "sum": total, "version": version}), flush=True)
