"""Asks `ColonnadeVectorEnv` what Gymnasium's users ask a vector environment; prints what it found as JSON."""

import json
import os
import signal
import sys

sys.path.insert(0, sys.argv[1])
command = sys.argv[2:]

import gymnasium
import numpy as np
from colonnade import ColonnadeVectorEnv

found = {}
for mode in ("next-step", "same-step"):
    env = ColonnadeVectorEnv("CartPole-v1", 6, autoreset=mode, command=command)
    first, _ = env.reset(seed=4)
    rng = np.random.default_rng(1)
    ends, dead, finals = 0, 0, 0
    before = np.zeros(6, bool)
    for _ in range(200):
        seen, reward, terminated, truncated, info = env.step(rng.integers(0, 2, 6))
        assert env.observation_space.contains(seen) and reward.shape == (6,) and terminated.dtype == bool
        assert (reward == np.where(before & (mode == "next-step"), 0, 1)).all(), (reward, before)
        dead += int((reward == 0).sum())
        ended = terminated | truncated
        ends += int(ended.sum())
        if mode == "same-step" and ended.any():
            assert (info["_final_obs"] == ended).all()
            assert (np.abs(info["final_obs"][ended][:, 2]) > 0.2094).all() and (np.abs(seen[ended]) <= 0.05).all()
            finals += int(ended.sum())
        before = ended
    again, _ = env.reset(seed=4)
    found[mode] = {"ends": ends, "dead": dead, "finals": finals, "same": bool((first == again).all())}
    env.close()

env = ColonnadeVectorEnv("TicTacToe-v0", 2, command=command)
found["mask"] = env.reset(seed=0)[1]["action_mask"].shape
try:
    env.step([99, 0])
except ValueError as error:
    found["refused"] = str(error)
os.kill(env._process.pid, signal.SIGKILL)
try:
    env.step([0, 0])
except RuntimeError as error:
    found["gone"] = str(error)
found["recordable"] = gymnasium.wrappers.vector.RecordEpisodeStatistics(
    ColonnadeVectorEnv("Pendulum-v1", 3, command=command)
).reset(seed=1)[0].shape
print(json.dumps(found))
