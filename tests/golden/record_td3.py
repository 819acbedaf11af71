#!/usr/bin/env python3
"""Records gradient steps of Stable-Baselines3's TD3 on given weights, minibatches and noise.

`td3.json` beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install stable-baselines3==2.9.2 torch==2.15.0
    /tmp/venv/bin/python tests/golden/record_td3.py

`TD3.train` runs as it is; only the replay's draws and the target's noise are given to it. Weights are lists by parameter, in the order
actor, critic0, critic1, each layer's matrix (inputs × outputs, row-major), then its bias. `steps` has, for each gradient step, its
minibatch, the standard normal numbers behind the noise, and both losses (null where the actor did not step), and of every second one the
weights of the networks and of the targets afterwards.
"""

import json
import platform
from pathlib import Path

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.buffers import ReplayBufferSamples
from stable_baselines3.common.logger import Logger

HERE = Path(__file__).resolve().parent
WIDTH, ACTIONS, BATCH, STEPS = 3, 2, 12, 5
SETTINGS = {
    "learning_rate": 0.01, "gamma": 0.9, "tau": 0.2, "policy_delay": 2,
    "target_policy_noise": 0.4, "target_noise_clip": 0.3,
}  # fmt: skip


class Nothing(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (WIDTH,), np.float32)
    action_space = gymnasium.spaces.Box(np.float32([-1, -3]), np.float32([2, 0.5]))


def layers(model):
    stacks = [model.actor.mu, *model.critic.q_networks], [model.actor_target.mu, *model.critic_target.q_networks]
    return [[m for stack in part for m in stack if isinstance(m, torch.nn.Linear)] for part in stacks]


def weights_of(part):
    return [np.float64(x.detach().numpy()).ravel().tolist() for m in part for x in (m.weight.T, m.bias)]


torch.manual_seed(1)
random = np.random.default_rng(2)
model = TD3("MlpPolicy", Nothing(), policy_kwargs={"net_arch": [6, 5]}, batch_size=BATCH, seed=3, **SETTINGS)
model.set_logger(Logger(None, []))
with torch.no_grad():
    for part in layers(model):  # The targets differ from the networks, so that it shows which one is read.
        for layer in part:
            for x in (layer.weight, layer.bias):
                x += torch.from_numpy(random.normal(0, 0.2, tuple(x.shape)).astype(np.float32))
begun = [weights_of(part) for part in layers(model)]

steps = []
current = {}
model.replay_buffer.sample = lambda *_, **__: ReplayBufferSamples(
    *(torch.from_numpy(current[name]) for name in ("observation", "action", "next", "terminated", "reward"))
)
torch.Tensor.normal_ = lambda self, mean, deviation: self.copy_(deviation * torch.from_numpy(current["normal"]))
for _ in range(STEPS):
    floats = lambda *shape: random.normal(0, 1, shape).astype(np.float32)
    current = {
        "observation": floats(BATCH, WIDTH),
        "action": random.uniform(-1, 1, (BATCH, ACTIONS)).astype(np.float32),
        "next": floats(BATCH, WIDTH),
        "terminated": (random.uniform(0, 1, (BATCH, 1)) < 0.3).astype(np.float32),
        "reward": floats(BATCH, 1),
        "normal": floats(BATCH, ACTIONS),
    }
    model.train(1, BATCH)
    after = [weights_of(part) for part in layers(model)]
    told = {name.removeprefix("train/"): value for name, value in model.logger.name_to_value.items()}
    model.logger.name_to_value.clear()
    lists = {"critic_loss": float(told["critic_loss"]), "actor_loss": told.get("actor_loss") and float(told["actor_loss"])}
    lists |= {name: np.float64(values).ravel().tolist() for name, values in current.items()}
    steps.append({**lists, "weights": after[0], "target": after[1]} if len(steps) % 2 == 0 else lists)

text = {
    "command": "python tests/golden/record_td3.py",
    "versions": {
        "python": platform.python_version(),
        "stable_baselines3": stable_baselines3.__version__,
        "torch": torch.__version__.split("+")[0],
    },
    "settings": SETTINGS, "hidden": [6, 5], "weights": begun[0], "target": begun[1], "steps": steps,
}  # fmt: skip
(HERE / "td3.json").write_text(json.dumps(text) + "\n")
