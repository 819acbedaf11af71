#!/usr/bin/env python3
"""Records steps of Gymnasium's MuJoCo environments from full states.

`mujoco.json` beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install 'gymnasium[mujoco]==1.4.0' mujoco==3.14.0 numpy==2.4.6
    /tmp/venv/bin/python tests/golden/record_mujoco.py

A folder behind the command takes the file in place of this one, and a number behind it is how many states of each environment are
recorded (3 here). `tests/outside/mujoco.test.ts` records 100 of each.

How to read it: each environment has

* ``states``: MuJoCo's integration state before a step (`mj_getState` of `mjSTATE_INTEGRATION`), and ``measured``, what the reward compares
  with its value after the step: the x of the root, of Ant's torso or of Humanoid's center of mass;
* ``actions``, float32 numbers, handed over as float64 so that all of Gymnasium's arithmetic is in float64;
* ``after``: the integration state after it; ``observations``, ``rewards``, ``terminated``;
* ``starts``: positions and velocities of 50 starts (only with more than 3 states), to compare their distribution;
* ``path``: a state, 200 actions, and the positions after each, steps being made also after the end of the episode (only with more than 3).
"""

import json
import platform
import sys
from pathlib import Path

import gymnasium
import mujoco
import numpy as np

HERE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 3
IDS = [
    "Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "InvertedDoublePendulum-v5", "InvertedPendulum-v5",
    "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5",
]  # fmt: skip
SPEC = mujoco.mjtState.mjSTATE_INTEGRATION


def state_of(env):
    state = np.empty(mujoco.mj_stateSize(env.model, SPEC))
    mujoco.mj_getState(env.model, env.data, state, SPEC)
    return state.tolist()


def measure(name, env):
    if name == "Ant-v5":
        return float(env.data.body(1).xpos[0])
    if name == "Humanoid-v5":
        return float((env.model.body_mass @ env.data.xipos)[0] / env.model.body_mass.sum())
    return float(env.data.qpos[0]) if name in ("HalfCheetah-v5", "Hopper-v5", "Swimmer-v5", "Walker2d-v5") else 0.0


def record(name, seed):
    env = gymnasium.make(name).unwrapped
    env.reset(seed=seed)
    random = np.random.default_rng(seed)
    low, high = env.action_space.low, env.action_space.high
    told = {key: [] for key in ("states", "measured", "actions", "after", "observations", "rewards", "terminated")}
    since = 0
    while len(told["states"]) < COUNT:
        action = np.float64(np.float32(random.uniform(low, high)))
        before, measured = state_of(env), measure(name, env)
        observation, reward, terminated, _, _ = env.step(action)
        since += 1
        if random.uniform() < (0.5 if COUNT > 3 else 0.15) or terminated:
            row = (before, measured, action.tolist(), state_of(env), observation.tolist(), float(reward), bool(terminated))
            for key, value in zip(told, row):
                told[key].append(value)
        if terminated or since > 60:
            env.reset()
            since = 0
    if COUNT <= 3:
        return told
    told["starts"] = [env.reset()[0] is None or [*env.data.qpos, *env.data.qvel] for _ in range(50)]
    path = {"state": state_of(env), "actions": [], "positions": []}
    for _ in range(200):
        action = np.float64(np.float32(random.uniform(low, high)))
        env.step(action)
        path["actions"].append(action.tolist())
        path["positions"].append(env.data.qpos.tolist())
    return {**told, "path": path}


versions = {"python": platform.python_version(), "gymnasium": gymnasium.__version__}
versions |= {"mujoco": mujoco.__version__, "numpy": np.__version__}
told = {"command": "python tests/golden/record_mujoco.py", "versions": versions}
told["environments"] = {name: record(name, seed) for seed, name in enumerate(IDS)}
(HERE / "mujoco.json").write_text(json.dumps(told) + "\n")
