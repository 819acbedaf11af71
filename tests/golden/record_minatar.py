#!/usr/bin/env python3
"""Records reference trajectories of MinAtar's Breakout.

The data beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install --no-deps MinAtar==1.0.15 numpy==2.4.6
    /tmp/venv/bin/python tests/golden/record_minatar.py

with Python 3.11 (the JSON repeats its versions and command).

How to read the numbers:

* Sticky actions are off, so the only chance is the side on which the ball starts.
* ``actions`` and ``rewards`` hold T entries; actions are 0 none, 1 left, 2 right.
* ``states`` holds T+1 entries of seven numbers. The first four are the whole
  observation, read back from the 10 × 10 × 4 array that MinAtar gives: the column
  of the paddle (channel 0, always in row 9), the cell of the ball (channel 1) and
  of its trail (channel 2) as 10 * row + column, and the bricks (channel 3, always
  in rows 1 to 3) as a number whose bit ``10 * (row - 1) + column`` is set where
  there is one. The last three are what is not seen: the ball's direction (0 up
  left, 1 up right, 2 down right, 3 down left), ``strike``, and whether the episode
  has ended.
"""

import copy
import importlib.metadata
import json
import platform
from pathlib import Path

import numpy as np
from minatar import Environment

COMMAND = "python tests/golden/record_minatar.py"
HERE = Path(__file__).resolve().parent
NONE, LEFT, RIGHT = 0, 1, 2


# --- policies: policy(game, rng) -> action ---------------------------------------------


def uniform(game, rng):
    return int(rng.integers(3))


def constant(action):
    return lambda game, rng: action


def follow(noise):
    """Meets the ball where it will come down, from either side; acts at random with probability noise."""
    aim = {"last_y": None, "side": 0}

    def policy(game, rng):
        if rng.random() < noise:
            return uniform(game, rng)
        if game.ball_y == 8 or aim["last_y"] is None:
            aim["side"] = int(rng.integers(2))
        aim["last_y"] = game.ball_y
        fall = copy.deepcopy(game)
        fall.pos = -5  # Out of the way: the ball falls through.
        while not fall.terminal:
            column = fall.ball_x
            fall.act(0)
            fall.pos = -5
        target = column if aim["side"] == 0 else fall.ball_x
        return NONE if target == game.pos else LEFT if target < game.pos else RIGHT

    return policy


# (name, policy, steps at most) of every episode; its seed is its index.
PLAN = (
    [("uniform", uniform, 500)] * 40
    + [("constant", constant(action), 500) for action in (NONE, LEFT, RIGHT)] * 4
    + [("follow", follow(0.0), 1000)] * 6
    + [("follow-noisy", follow(0.15), 500)] * 12
)


# --- recording -------------------------------------------------------------------------


def cell(channel):
    (places,) = np.nonzero(channel.reshape(-1))
    assert len(places) == 1
    return int(places[0])


def snapshot(env):
    seen, game = env.state(), env.env
    assert seen.shape == (10, 10, 4)
    bricks = seen[:, :, 3]
    assert not bricks[0].any() and not bricks[4:].any()
    paddle = cell(seen[:, :, 0]) - 90
    assert paddle >= 0
    bits = sum(1 << int(place) for place in np.nonzero(bricks[1:4].reshape(-1))[0])
    return [
        paddle,
        cell(seen[:, :, 1]),
        cell(seen[:, :, 2]),
        bits,
        int(game.ball_dir),
        int(game.strike),
        int(game.terminal),
    ]


def record_episode(seed, name, policy, steps_max):
    env = Environment("breakout", sticky_action_prob=0.0)
    env.seed(seed)
    env.reset()
    rng = np.random.default_rng([seed, 0x5EED])
    minimal = env.minimal_action_set()
    states, actions, rewards = [snapshot(env)], [], []
    while len(actions) < steps_max and not env.env.terminal:
        action = policy(env.env, rng)
        reward, _ = env.act(minimal[action])
        actions.append(action)
        rewards.append(int(reward))
        states.append(snapshot(env))
    return {"seed": seed, "policy": name, "actions": actions, "rewards": rewards, "states": states}


def check(episodes):
    """The data covers what its readers rely on."""
    starts = {episode["states"][0][1] for episode in episodes}
    assert starts == {30, 39}
    refills = struck = from_side = from_above = lost = 0
    for episode in episodes:
        lost += episode["states"][-1][6]
        for before, after, reward in zip(episode["states"], episode["states"][1:], episode["rewards"]):
            refills += before[3] == 0 and after[3] == 2**30 - 1
            struck += after[5] == 1 and reward == 0  # Met a brick just after breaking one: goes through it.
            hit = before[1] // 10 == 8 and after[1] // 10 == 8 and before[4] >= 2
            from_above += hit and before[1] % 10 == after[0]
            from_side += hit and before[1] % 10 != after[0]
    assert refills >= 5 and struck and from_side and from_above and lost
    steps = sum(len(episode["actions"]) for episode in episodes)
    print(
        f"{len(episodes)} episodes, {steps} steps: {lost} lost, {refills} refills, {struck} bricks passed, "
        f"{from_above} hits from above, {from_side} from the side"
    )


def record(path):
    head = {
        "environment": "breakout",
        "minatar": importlib.metadata.version("MinAtar"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "command": COMMAND,
    }
    episodes = [record_episode(seed, *entry) for seed, entry in enumerate(PLAN)]
    check(episodes)

    # One episode a line, so that a change of the data gives a readable diff.
    def dump(value):
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    path.write_text(dump(head)[:-1] + ',"episodes":[\n' + ",\n".join(map(dump, episodes)) + "\n]}\n")


if __name__ == "__main__":
    record(HERE / "breakout-minatar.json")
