#!/usr/bin/env python3
"""Times Stable-Baselines3's PPO on CartPole-v1, on the CPU, as a peer to compare with.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install --no-cache-dir gymnasium==1.4.0 numpy==2.4.6 \
        stable-baselines3==2.9.2 torch==2.15.0

    # RL Zoo's settings for CartPole-v1
    /tmp/venv/bin/python bench/peers/stable_baselines3.py --config zoo --seed 1
    # the settings of our own benchmark
    /tmp/venv/bin/python bench/peers/stable_baselines3.py --config own --envs 256 --steps 32 \
        --minibatches 8 --epochs 4 --lr 2e-3 --total-steps 200000 --seed 1

Prints a table, then one line of JSON. The time is that of `learn` alone: rollouts
and updates, without imports, construction or evaluation. "Solved" is the first
step at which the mean of the last 100 finished training episodes (sampled
actions) reaches 475.

SB3 collects whole rollouts, so it runs up to envs * steps - 1 steps more than
asked; "steps_per_second" counts the steps that ran.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections import deque
from pathlib import Path

# This file has the name of the package it imports: keep its folder off the import path.
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

import gymnasium
import numpy
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

ENVIRONMENT = "CartPole-v1"
THRESHOLD = 475.0
WINDOW = 100

# https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/hyperparams/ppo.yml, CartPole-v1
ZOO = dict(envs=8, steps=32, minibatches=1, epochs=20, lr=1e-3, linear=True, gamma=0.98, gae_lambda=0.8, total_steps=100_000)
OWN = dict(envs=256, steps=32, minibatches=8, epochs=4, lr=2e-3, linear=False, gamma=0.99, gae_lambda=0.95, total_steps=200_000)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Times Stable-Baselines3's PPO on CartPole-v1.")
    parser.add_argument("--config", choices=["zoo", "own"], default="zoo", help="defaults of all the options below")
    parser.add_argument("--envs", type=int)
    parser.add_argument("--steps", type=int, help="steps of each environment in one rollout")
    parser.add_argument("--minibatches", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--linear", action=argparse.BooleanOptionalAction, help="decay lr and clip range linearly to 0")
    parser.add_argument("--gamma", type=float)
    parser.add_argument("--gae-lambda", type=float)
    parser.add_argument("--total-steps", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch threads")
    config = parser.parse_args().config
    parser.set_defaults(**(ZOO if config == "zoo" else OWN))
    arguments = parser.parse_args()
    if arguments.envs * arguments.steps % arguments.minibatches:
        parser.error("--minibatches must divide envs * steps")
    return arguments


class Progress(BaseCallback):
    """Notes when the mean return of the last WINDOW episodes first reaches THRESHOLD."""

    def __init__(self):
        super().__init__()
        self.returns = deque(maxlen=WINDOW)
        self.episodes = 0
        self.solved_step = self.solved_seconds = None

    def _on_training_start(self):
        self.started = time.perf_counter()

    def _on_step(self):
        for info in self.locals["infos"]:
            if "episode" not in info:
                continue
            self.returns.append(info["episode"]["r"])
            self.episodes += 1
            if self.solved_step is None and len(self.returns) == WINDOW and self.mean() >= THRESHOLD:
                self.solved_step = self.num_timesteps
                self.solved_seconds = time.perf_counter() - self.started
        return True

    def mean(self):
        return sum(self.returns) / len(self.returns) if self.returns else None


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)

    def schedule(value):
        return (lambda remaining: remaining * value) if arguments.linear else value

    model = PPO(
        "MlpPolicy",  # separate 64-64 tanh networks for the policy and the value
        make_vec_env(ENVIRONMENT, n_envs=arguments.envs, seed=arguments.seed, vec_env_cls=DummyVecEnv),
        n_steps=arguments.steps,
        batch_size=arguments.envs * arguments.steps // arguments.minibatches,
        n_epochs=arguments.epochs,
        learning_rate=schedule(arguments.lr),
        clip_range=schedule(0.2),
        gamma=arguments.gamma,
        gae_lambda=arguments.gae_lambda,
        ent_coef=0.0,
        seed=arguments.seed,
        device="cpu",
    )
    progress = Progress()
    started = time.perf_counter()
    model.learn(arguments.total_steps, callback=progress)
    seconds = time.perf_counter() - started

    def rounded(value, digits):
        return None if value is None else round(value, digits)

    result = {
        "peer": "stable-baselines3",
        "environment": ENVIRONMENT,
        "config": vars(arguments),
        "seeds": [arguments.seed],
        "total_steps": model.num_timesteps,
        "seconds": rounded(seconds, 3),
        "steps_per_second": rounded(model.num_timesteps / seconds, 1),
        "solved_step": progress.solved_step,
        "solved_seconds": rounded(progress.solved_seconds, 3),
        "episodes": progress.episodes,
        "final_mean_return_100": rounded(progress.mean(), 2),
        "load_average_1m": round(os.getloadavg()[0], 2),
        "cpus": os.cpu_count(),
        "versions": {
            "python": platform.python_version(),
            "stable_baselines3": stable_baselines3.__version__,
            "torch": torch.__version__,
            "gymnasium": gymnasium.__version__,
            "numpy": numpy.__version__,
        },
    }
    for key, value in result.items():
        if not isinstance(value, (dict, list)):
            print(f"{key:<24}{'-' if value is None else value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
