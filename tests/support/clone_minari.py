"""Clones the policy of a dataset of Minari with torch, plays Gymnasium's CartPole-v1 with it and prints what it comes to, as JSON."""

import json
import sys

import gymnasium
import minari
import numpy as np
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
episodes = list(minari.load_dataset(sys.argv[1]).iterate_episodes())
seen = torch.from_numpy(np.concatenate([each.observations[:-1] for each in episodes]))
chosen = torch.from_numpy(np.concatenate([each.actions for each in episodes]))
policy = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
for _ in range(20):
    for rows in torch.randperm(len(seen)).split(512):
        loss = torch.nn.functional.cross_entropy(policy(seen[rows]), chosen[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

environment = gymnasium.make("CartPole-v1")
returns = []
for seed in range(20):
    observation, _ = environment.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        with torch.no_grad():
            action = int(policy(torch.from_numpy(observation)).argmax())
        observation, reward, terminated, truncated, _ = environment.step(action)
        total += float(reward)
        over = terminated or truncated
    returns.append(total)
json.dump({"steps": len(seen), "mean": float(np.mean(returns)), "min": min(returns)}, sys.stdout)
