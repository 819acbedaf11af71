#!/usr/bin/env python3
"""Trains by Stable-Baselines3 on the CPU, as a peer to compare with.

    pip install gymnasium==1.4.0 numpy==2.4.6 stable-baselines3==2.9.2 torch==2.15.0
    echo train | python bench/peers/stable_baselines3.py --algorithm ppo --config own

Each line `train` of its input makes a new model, trains it, and is answered by one line of JSON. The time is that of `learn`
alone: rollouts and updates, without imports and construction. Stable-Baselines3 collects whole rollouts, so it may run more
steps than asked; `steps` counts those that ran. `meanReturn` is that of the last 20 finished training episodes.
"""

import argparse
import json
import sys
import time
from collections import deque
from pathlib import Path

# This file has the name of the package it imports: keep its folder off the import path.
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

import stable_baselines3
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv


def falling(value):
    """A schedule that falls to 0 linearly."""
    return lambda remaining: remaining * value


# `own`: the settings of our bench. `zoo`: those of RL Zoo (DLR-RM/rl-baselines3-zoo, hyperparams/{ppo,dqn,sac}.yml), with
# fewer steps for DQN and SAC, whose cost a step is the same from the first update on.
PPO_OWN = dict(n_steps=32, batch_size=1024, n_epochs=4, learning_rate=2e-3, clip_range=0.2, gamma=0.99, gae_lambda=0.95)
PPO_ZOO = dict(
    n_steps=32, batch_size=256, n_epochs=20, learning_rate=falling(1e-3), clip_range=falling(0.2), gamma=0.98, gae_lambda=0.8
)
DQN_ZOO = dict(
    learning_rate=2.3e-3,
    batch_size=64,
    buffer_size=100_000,
    learning_starts=1000,
    gamma=0.99,
    target_update_interval=10,
    train_freq=256,
    gradient_steps=128,
    exploration_fraction=0.16,
    exploration_final_eps=0.04,
    policy_kwargs=dict(net_arch=[256, 256]),
)
SAC_ZOO = dict(learning_rate=1e-3)
CONFIGS = {
    ("ppo", "own"): (PPO, "CartPole-v1", 256, 81_920, PPO_OWN),
    ("ppo", "zoo"): (PPO, "CartPole-v1", 8, 20_480, PPO_ZOO),
    ("dqn", "zoo"): (DQN, "CartPole-v1", 1, 8_192, DQN_ZOO),
    ("sac", "zoo"): (SAC, "Pendulum-v1", 1, 5_000, SAC_ZOO),
}
EPISODES = 20


class Returns(BaseCallback):
    """Keeps the returns of the last episodes."""

    def __init__(self):
        super().__init__()
        self.last = deque(maxlen=EPISODES)

    def _on_step(self):
        self.last.extend(info["episode"]["r"] for info in self.locals["infos"] if "episode" in info)
        return True


def train(algorithm, environment, num_envs, total_steps, settings, seed):
    lanes = make_vec_env(environment, n_envs=num_envs, seed=seed, vec_env_cls=DummyVecEnv)
    model = algorithm("MlpPolicy", lanes, seed=seed, device="cpu", **settings)
    returns = Returns()
    started = time.perf_counter()
    model.learn(total_steps, callback=returns)
    seconds = time.perf_counter() - started
    lanes.close()
    return {
        "seconds": seconds,
        "steps": model.num_timesteps,
        "meanReturn": float(sum(returns.last) / len(returns.last)),
        "version": stable_baselines3.__version__,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=["ppo", "dqn", "sac"], default="ppo")
    parser.add_argument("--config", choices=["zoo", "own"], default="zoo")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    arguments = parser.parse_args()
    config = CONFIGS.get((arguments.algorithm, arguments.config))
    if config is None:
        parser.error(f"{arguments.algorithm} has the config zoo alone")
    torch.set_num_threads(arguments.threads)
    for seed, line in enumerate(sys.stdin, start=1):
        if line.strip() != "train":
            parser.error(f"got {line.strip()!r}, expected train")
        print(json.dumps(train(*config, seed)), flush=True)


if __name__ == "__main__":
    main()
