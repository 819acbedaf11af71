#!/usr/bin/env python3
"""Records reference trajectories of MinAtar's Asterix, Freeway, Seaquest and Space Invaders.

The data beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install --no-deps MinAtar==1.0.15 numpy==2.4.6
    /tmp/venv/bin/python tests/golden/record_minatar_games.py

with Python 3.11 (the JSON repeats its versions and command).

How to read the numbers:

* Sticky actions are off. ``actions`` hold a digit a step, numbered from 0 in the order of MinAtar's minimal set.
* ``rewards`` holds the steps with a reward, and the rewards: [step, reward].
* ``seen`` holds the CRC-32 of each observation, T + 1 of them: of 10 × 10 × channels bytes, each 0 or 1.
* ``draws`` holds the chance of an episode in its order. Asterix: for each that comes, whether from the left, whether gold, and
  which of how many free rows ([1, 0, 2, 7]); of one for which no row is free nothing. Freeway: the speeds of the eight cars, as
  signed steps of waiting, at the start and each time that the chicken is across. Seaquest: for each enemy that comes, whether from the
  left, whether a submarine, and in which of the rows 1 to 8, counted from 0 ([1, 0, 2]); for each diver the same without the second.
* ``over`` is 1 if the last step ended the episode, before the limit of steps.
"""

import copy
import importlib.metadata
import json
import platform
import zlib
from pathlib import Path

import numpy as np
from minatar import Environment

COMMAND = "python tests/golden/record_minatar_games.py"
HERE = Path(__file__).resolve().parent


class Chance:
    """MinAtar's generator, which notes what it gave."""

    def __init__(self, generator):
        self.generator, self.given = generator, []

    def rand(self, *shape):
        value = self.generator.rand(*shape)
        self.given.append(value.tolist() if shape else float(value))
        return value

    def randint(self, low, high=None, size=None):
        value = self.generator.randint(low, high, size)
        self.given.append(value.tolist() if size else [int(value), int(low)])
        return value

    def take(self):
        given, self.given = self.given, []
        return given


def draws_of(name, given):
    if name == "asterix" and len(given) == 3:
        left, gold, (slot, count) = given
        return [[int(left < 1 / 2), int(gold < 1 / 3), slot, count]]
    if name == "freeway" and given:
        speeds, directions = given
        return [[speed if way > 0.5 else -speed for speed, way in zip(speeds, directions)]]
    if name == "seaquest":
        draws, drawn = [], []
        for each in given:
            if isinstance(each, list):
                draws.append([int(part < (1 / 2 if i == 0 else 1 / 3)) for i, part in enumerate(drawn)] + [each[0] - each[1]])
                drawn = []
            else:
                drawn.append(each)
        return draws
    return []


def uniform(game, count, rng):
    return int(rng.integers(count))


def upwards(game, count, rng):
    """Freeway: mostly up, so that the chicken gets across."""
    return 1 if rng.random() < 0.9 else int(rng.integers(count))


def shooting(game, count, rng):
    """Space invaders: what shoots most and lives, as far as twelve steps show, else towards the aliens' lowest."""
    best, most = 0, None
    lowest = max(range(10), key=lambda x: (np.flatnonzero(game.alien_map[:, x]).max(initial=-1), -abs(x - game.pos)))
    for action, code in enumerate(game.minimal_action_set()):
        trial = copy.deepcopy(game)
        worth = trial.act(code)[0] - 0.05 * abs(trial.pos - lowest) + 0.1 * (action == 3) + 0.2 * rng.random()
        for t in range(12):
            worth += trial.act(0)[0] - (100 if t < 5 and trial.terminal else 0)
        if most is None or worth > most:
            best, most = action, worth
    return best


def collecting(game, count, rng):
    """Asterix: to the row of gold that is near, and away from enemies."""
    best, least = 0, None
    for action, (dx, dy) in enumerate([(0, 0), (-1, 0), (0, -1), (1, 0), (0, 1)]):
        x, y = min(max(game.player_x + dx, 0), 9), min(max(game.player_y + dy, 1), 8)
        cost = rng.random() * 0.5
        for entity in game.entities:
            if entity is None:
                continue
            far = abs(entity[0] - x) + 2 * abs(entity[1] - y)
            cost += -4 / (1 + far) if entity[3] else (20 if entity[1] == y and abs(entity[0] - x) < 3 else 0)
        if least is None or cost < least:
            best, least = action, cost
    return best


def diving(game, count, rng):
    """Seaquest: shoots, picks up divers and comes up with them, as far as four steps show what is safe."""
    wants_up = game.diver_count == 6 or (game.oxygen < 60 and game.diver_count != 0)
    distance = lambda x, y: abs(x - game.sub_x) + abs(y - game.sub_y)
    divers = [diver[:2] for diver in game.divers]
    target = [game.sub_x, 0] if wants_up else min(divers, key=lambda diver: distance(*diver), default=[5, 4])
    best, most = 0, None
    for action, code in enumerate(game.minimal_action_set()):
        trial = copy.deepcopy(game)
        worth = 2 * trial.act(code)[0] + 0.5 * trial.diver_count + 0.3 * rng.random()
        worth -= 0.2 * (abs(trial.sub_x - target[0]) + abs(trial.sub_y - target[1]))
        for _ in range(4):
            worth += trial.act(0)[0]
        if trial.terminal:
            worth -= 100
        if most is None or worth > most:
            best, most = action, worth
    return best


# (policy, steps at most) of each game's episodes; the seed of an episode is its index.
PLAN = {
    "asterix": [(uniform, 400)] * 6 + [(collecting, 1500)] * 6,
    "freeway": [(uniform, 300)] * 2 + [(upwards, 800)] * 4,
    "seaquest": [(uniform, 400)] * 6 + [(diving, 1500)] * 6,
    "space_invaders": [(uniform, 400)] * 6 + [(shooting, 1200)] * 6,
}


def record_episode(name, seed, policy, steps_max):
    env = Environment(name, sticky_action_prob=0.0)
    env.seed(seed)
    chance = env.env.random = Chance(env.env.random)
    env.reset()
    rng = np.random.default_rng([seed, 0x5EED])
    minimal = env.minimal_action_set()
    seen = [zlib.crc32(env.state().astype(np.uint8).tobytes())]
    draws, actions, rewards = draws_of(name, chance.take()), [], []
    while len(actions) < steps_max and not env.env.terminal:
        action = policy(env.env, len(minimal), rng)
        reward, _ = env.act(minimal[action])
        draws += draws_of(name, chance.take())
        if reward:
            rewards.append([len(actions), int(reward)])
        actions.append(action)
        seen.append(zlib.crc32(env.state().astype(np.uint8).tobytes()))
    over = int(env.env.terminal)
    return {
        "seed": seed, "policy": policy.__name__, "actions": "".join(map(str, actions)),
        "rewards": rewards, "draws": draws, "over": over, "seen": seen,
    }


def record(path):
    head = {
        "minatar": importlib.metadata.version("MinAtar"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "command": COMMAND,
    }

    def dump(value):
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    games = []
    for name, plan in PLAN.items():
        episodes = [record_episode(name, seed, *entry) for seed, entry in enumerate(plan)]
        games.append(f"{dump(name)}:[\n" + ",\n".join(map(dump, episodes)) + "\n]")
        steps = sum(len(episode["actions"]) for episode in episodes)
        rewards = sum(reward for episode in episodes for _, reward in episode["rewards"])
        over = sum(episode["over"] for episode in episodes)
        longest = max(len(episode["actions"]) for episode in episodes)
        print(f"{name}: {len(episodes)} episodes, {steps} steps, rewards {rewards}, {over} over, longest {longest}")
    path.write_text(dump(head)[:-1] + "," + ",\n".join(games) + "}\n")


if __name__ == "__main__":
    record(HERE / "minatar-games.json")
