#!/usr/bin/env python3
"""Gymnasium's vector environments of MuJoCo's tasks, for `npm run bench -- mujoco`.

    python bench/peers/mujoco_twins.py --environment HalfCheetah-v5 --kind sync --lanes 16

Each line of standard input, `step N`, asks for N steps of all lanes; the answer is a line of JSON: seconds, episodes that ended,
and versions. Actions are normal, cut to the bounds, and drawn before the clock starts.
"""

import argparse
import json
import sys
import time

import gymnasium
import mujoco
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--environment", required=True)
parser.add_argument("--kind", choices=["sync", "async"], required=True)
parser.add_argument("--lanes", type=int, required=True)
words = parser.parse_args()


def make():
    return gymnasium.make(words.environment)


def main():
    kind = gymnasium.vector.SyncVectorEnv if words.kind == "sync" else gymnasium.vector.AsyncVectorEnv
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    envs = kind([make] * words.lanes, autoreset_mode=mode)
    envs.reset(seed=1)
    space = envs.single_action_space
    draw = np.random.default_rng(1)
    versions = f"Gymnasium {gymnasium.__version__}, MuJoCo {mujoco.__version__}"
    for line in sys.stdin:
        count = int(line.split()[1])
        actions = draw.standard_normal((count, words.lanes, *space.shape)).clip(space.low, space.high).astype(space.dtype)
        episodes, start = 0, time.perf_counter()
        for action in actions:
            _, _, terminated, truncated, _ = envs.step(action)
            episodes += int(np.count_nonzero(terminated | truncated))
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "episodes": episodes, "versions": versions}), flush=True)
    envs.close()


if __name__ == "__main__":
    main()
