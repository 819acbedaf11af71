#!/usr/bin/env python3
"""Gymnasium's vector environment and NumPy's advantages, as peers to compare with.

    /tmp/venv/bin/pip install gymnasium==1.4.0 numpy==2.4.6
    echo 'cartpole 1024 100' | /tmp/venv/bin/python bench/peers/gymnasium_numpy.py

Reads requests, a line each, and answers each with one JSON line; sleeps in between.
    cartpole LANES TICKS                    CartPoleVectorEnv with random actions; seconds, and ends of episodes
    vector ID LANES TICKS                   any environment with random actions, vectorized by itself or one by one; seconds, null if there is none
    gae FOLDER STEPS LANES GAMMA LAMBDA     advantages of the folder's columns; seconds, and sums of the advantages
"""

import json
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np

PATTERNS = 16
environments = {}
columns = {}


def cartpole(lanes, ticks):
    lanes, ticks = int(lanes), int(ticks)
    if lanes not in environments:
        made = gymnasium.make_vec("CartPole-v1", num_envs=lanes, vectorization_mode="vector_entry_point")
        made.reset(seed=1)
        environments[lanes] = made, np.random.default_rng(1).integers(0, 2, (PATTERNS, lanes))
    env, actions = environments[lanes]
    ended = []
    begin = time.perf_counter()
    for t in range(ticks):
        _, _, terminated, _, _ = env.step(actions[t % PATTERNS])
        ended.append(terminated)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "ends": int(np.count_nonzero(ended)), "version": gymnasium.__version__}


def vector(name, lanes, ticks):
    lanes, ticks = int(lanes), int(ticks)
    if name not in gymnasium.registry:
        return {"seconds": None, "mode": "", "version": gymnasium.__version__}
    mode = "sync" if gymnasium.spec(name).vector_entry_point is None else "vector_entry_point"
    if (name, lanes) not in environments:
        made = gymnasium.make_vec(name, num_envs=lanes, vectorization_mode=mode)
        made.reset(seed=1)
        made.action_space.seed(1)
        environments[name, lanes] = made, [made.action_space.sample() for _ in range(PATTERNS)]
    env, actions = environments[name, lanes]
    begin = time.perf_counter()
    for t in range(ticks):
        env.step(actions[t % PATTERNS])
    return {"seconds": time.perf_counter() - begin, "mode": mode, "version": gymnasium.__version__}


def gae(folder, steps, lanes, gamma, lam):
    steps, lanes, gamma, lam = int(steps), int(lanes), np.float32(gamma), np.float32(lam)
    if folder not in columns:

        def read(name, kind):
            return np.fromfile(Path(folder, name), kind).reshape(steps, lanes)

        columns[folder] = read("reward", "f4"), read("value", "f4"), read("nextValue", "f4"), read("terminated", "u1")
    reward, value, next_value, terminated = columns[folder]
    begin = time.perf_counter()
    advantage = np.empty_like(reward)
    last = np.zeros(lanes, np.float32)
    goes_on = np.float32(1) - terminated
    for t in range(steps - 1, -1, -1):
        delta = reward[t] + gamma * next_value[t] * goes_on[t] - value[t]
        advantage[t] = last = delta + gamma * lam * goes_on[t] * last
    returns = advantage + value
    seconds = time.perf_counter() - begin
    sums = [float(np.abs(x).sum(dtype=np.float64)) for x in (advantage, returns)]
    return {"seconds": seconds, "advantage": sums[0], "returns": sums[1], "version": np.__version__}


for line in sys.stdin:
    word, *words = line.split()
    print(json.dumps({"cartpole": cartpole, "vector": vector, "gae": gae}[word](*words)), flush=True)
