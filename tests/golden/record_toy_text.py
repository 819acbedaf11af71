#!/usr/bin/env python3
"""Records the tables of transitions of Gymnasium's toy text, and games of Blackjack.

The data beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install gymnasium==1.4.0 numpy==2.4.6
    /tmp/venv/bin/python tests/golden/record_toy_text.py

A folder behind the command takes the file in place of this one.

* ``tables``: of each environment ``start``, the probability of each state to
  begin with, and ``outcomes``: for every state, for every action, a list of
  [probability, next state, reward, terminated].
  Taxi has ``action_masks``, 1 for each action that is legal in a state.
* ``games``: of each set of rules games of Blackjack, with all cards as they
  were drawn: ``player`` and ``dealer`` begin with two, the dealer's seen one
  first; observations are (sum, dealer's card, usable ace).
"""

import json
import platform
import sys
from pathlib import Path

import gymnasium
import numpy as np

HERE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"
OWN_MAP = ["SFHFS", "FFFFF", "HFGFF"]
TABLES = {
    "FrozenLake-v1": ("FrozenLake-v1", {}),
    "FrozenLake-v1, not slippery": ("FrozenLake-v1", {"is_slippery": False}),
    "FrozenLake-v1, own map": ("FrozenLake-v1", {"desc": OWN_MAP, "success_rate": 0.8}),
    "FrozenLake8x8-v1": ("FrozenLake8x8-v1", {}),
    "FrozenLake8x8-v1, not slippery": ("FrozenLake8x8-v1", {"is_slippery": False}),
    "CliffWalking-v1": ("CliffWalking-v1", {}),
    "CliffWalking-v1, slippery": ("CliffWalking-v1", {"is_slippery": True}),
    "Taxi-v3": (TAXI, {}),
}
RULES = {
    "sab": {"sab": True, "natural": False},
    "natural": {"sab": False, "natural": True},
    "neither": {"sab": False, "natural": False},
}
GAMES = 120


def table(id, arguments):
    env = gymnasium.make(id, **arguments)
    inner = env.unwrapped
    outcomes = [
        [[[float(p), int(s), float(r), bool(t)] for p, s, r, t in inner.P[state][action]] for action in range(len(inner.P[state]))]
        for state in range(len(inner.P))
    ]
    return {
        "max_episode_steps": env.spec.max_episode_steps,
        "reward_threshold": env.spec.reward_threshold,
        **({"action_masks": [inner.action_mask(s).tolist() for s in range(len(inner.P))]} if hasattr(inner, "action_mask") else {}),
        "start": [float(p) for p in inner.initial_state_distrib],
        "outcomes": outcomes,
    }


def game(env, seed):
    """Hits at random, less often the higher the sum."""
    rng = np.random.default_rng([seed, 0x5EED])
    observation, _ = env.reset(seed=seed)
    player, dealer = list(env.unwrapped.player), list(env.unwrapped.dealer)
    observations, actions, rewards, terminated = [list(map(int, observation))], [], [], False
    while not terminated:
        action = int(rng.random() > observation[0] / 21)
        observation, reward, terminated, _, _ = env.step(action)
        observations.append(list(map(int, observation)))
        actions.append(action)
        rewards.append(float(reward))
    assert env.unwrapped.player[:2] == player and env.unwrapped.dealer[:2] == dealer
    return {
        "player": list(env.unwrapped.player),
        "dealer": list(env.unwrapped.dealer),
        "observations": observations,
        "actions": actions,
        "rewards": rewards,
    }


def dump(value):
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


if __name__ == "__main__":
    head = {
        "gymnasium": gymnasium.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "command": "python tests/golden/record_toy_text.py",
    }
    tables = ",\n".join(f"{dump(name)}:{dump(table(*of))}" for name, of in TABLES.items())
    games = {name: [game(gymnasium.make("Blackjack-v1", **rules), seed) for seed in range(GAMES)] for name, rules in RULES.items()}
    for each in games.values():
        assert {1.0, 0.0, -1.0} <= {g["rewards"][-1] for g in each} and any(len(g["dealer"]) > 4 for g in each)
    assert any(g["rewards"][-1] == 1.5 for g in games["natural"])
    lines = ",\n".join(f"{dump(name)}:{dump(each)}" for name, each in games.items())
    text = dump(head)[:-1] + ',"tables":{\n' + tables + '\n},"games":{\n' + lines + "\n}}\n"
    (HERE / "toy-text.json").write_text(text)
    print(f"{len(TABLES)} tables, {sum(map(len, games.values()))} games")
