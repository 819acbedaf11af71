#!/usr/bin/env python3
"""Matrix products by torch and by JAX on one thread: c (rows x width) = a (rows x width) . b (width x width), in f32.

Reads requests, a line each, `torch|jax ROWS WIDTH CALLS`, and answers each with one JSON line: mean seconds of a call, and the
sum of c. Elements are those of the linear congruential generator of bench/kernels/network.ts, uniform on -1 ... 1. In JAX the
calls are one compiled loop whose every product takes the one before, divided by the width; its compilation is not timed.
"""

import json
import os
import sys
import time
from functools import lru_cache, partial

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])  # Before they begin their threads.

import jax  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


def uniform(count):
    """The first numbers of the generator, on -1 ... 1."""
    states = np.empty(count, np.uint64)
    state = 1
    for i in range(min(count, 4096)):
        state = (state * 1664525 + 1013904223) % 2**32
        states[i] = state
    for i in range(4096, count, 4096):  # As in products.ts: they repeat.
        states[i : i + 4096] = states[: min(4096, count - i)]
    return ((states >> np.uint64(8)).astype(np.float64) / 2**23 - 1).astype(np.float32)


@lru_cache(maxsize=4)
def operands(rows, width):
    return uniform(rows * width).reshape(rows, width), uniform(width * width).reshape(width, width)


@partial(jax.jit, static_argnums=2)
def chain(a, b, calls):
    return jax.lax.fori_loop(0, calls, lambda _, x: (x @ b) * (1 / b.shape[0]), a)


def run(library, rows, width, calls):
    a, b = operands(rows, width)
    if library == "torch":
        left, right, into = torch.from_numpy(a), torch.from_numpy(b), torch.empty(rows, width)
        torch.mm(left, right, out=into)
        begin = time.perf_counter()
        for _ in range(calls):
            torch.mm(left, right, out=into)
        return (time.perf_counter() - begin) / calls, float(into.double().sum())
    left, right = jax.device_put(a), jax.device_put(b)
    total = float(np.asarray(chain(left, right, 1), np.float64).sum() * width)
    chain(left, right, calls).block_until_ready()
    begin = time.perf_counter()
    chain(left, right, calls).block_until_ready()
    return (time.perf_counter() - begin) / calls, total


for line in sys.stdin:
    library, *sizes = line.split()
    seconds, total = run(library, *map(int, sizes))
    version = torch.__version__ if library == "torch" else jax.__version__
    print(json.dumps({"seconds": seconds, "sum": total, "version": version}), flush=True)
