#!/usr/bin/env python3
"""Records reference trajectories of Gymnasium's classic control.

The data beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install gymnasium==1.4.0 numpy==2.4.6
    /tmp/venv/bin/python tests/golden/record_gymnasium.py

with Python 3.11, gymnasium 1.4.0 and numpy 2.4.6 (each JSON repeats its own
versions and command). A folder behind the command takes the files in place of
this one: `tests/outside/gymnasium.test.ts` compares them with those here.

How to read the numbers:

* ``states``, ``actions`` and ``rewards`` are exact: every number is the shortest
  decimal that reads back as the very float64 the environment held. Pendulum's
  actions are float32 values, written as the float64 they equal.
* ``observations`` are float32, written as the shortest decimal that identifies
  the float32: apply ``Math.fround`` after ``JSON.parse`` to get it back.
* ``states`` and ``observations`` hold T+1 entries, ``actions`` and ``rewards`` T.
  ``terminated`` and ``truncated`` are those of the last step; both were false
  on every step before it.
* Pendulum's recorded action is the one passed to ``step``, before its clipping
  to [-2, 2]. The torque stays float32 in Gymnasium under numpy 2: ``3.0 * u``
  and ``0.001 * u**2`` are rounded to float32 before they meet a float64; and
  ``u**2`` goes through the C library's powf, at times one float32 unit beside
  ``u * u``, so that a reward may differ from the recorded one by about 1e-10.
* MountainCarContinuous's states are float32 from the first step on: exact too.
* ``pendulum-v1-f64.json`` is the same plan with the torques handed over as float64
  (the same float32 values), so that all of Gymnasium's arithmetic is in float64.
"""

import json
import platform
import sys
from pathlib import Path

import gymnasium
import numpy as np

COMMAND = "python tests/golden/record_gymnasium.py"
HERE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent


# --- policies: policy(t, state, rng) -> action -----------------------------------------


def cart_pole_random(t, state, rng):
    return int(rng.integers(2))


def cart_pole_constant(action):
    return lambda t, state, rng: action


def cart_pole_balance(x_target=0.0, noise=0.0):
    """Keeps the pole up and pulls the cart to x_target; acts at random with probability noise."""

    def policy(t, state, rng):
        if rng.random() < noise:
            return int(rng.integers(2))
        x, x_dot, theta, theta_dot = state
        return int(theta + 0.5 * theta_dot + 0.05 * (x - x_target) + 0.1 * x_dot > 0)

    return policy


def switch(at, before, after):
    """Follows the policy `before` for `at` steps, then the policy `after`."""
    return lambda t, state, rng: (before if t < at else after)(t, state, rng)


def pendulum_uniform(bound):
    return lambda t, state, rng: rng.uniform(-bound, bound)


def pendulum_constant(torque):
    return lambda t, state, rng: torque


def pendulum_pump(torque):
    """Pushes along the motion: the pendulum turns over and reaches the speed limit."""
    return lambda t, state, rng: torque if state[1] >= 0 else -torque


def pendulum_swing_up(t, state, rng):
    """Pumps energy, and holds the pendulum by a PD law (clipped by the environment) near the top."""
    theta, theta_dot = state
    angle = (theta + np.pi) % (2 * np.pi) - np.pi
    if abs(angle) < 0.5:
        return -12.0 * angle - 3.0 * theta_dot
    energy = 0.5 * theta_dot**2 + 15.0 * (np.cos(theta) - 1.0)
    return 2.0 if (energy < 0) == (theta_dot >= 0) else -2.0


def mountain_car_random(t, state, rng):
    return int(rng.integers(3))


def mountain_car_pump(t, state, rng):
    """Pushes along the motion, which brings the car to the goal."""
    return 2 if state[1] >= 0 else 0


def mountain_car_wall(right):
    """Pushes along the motion, but left of the place `right` alone: the car reaches the wall, and not the goal."""
    return lambda t, state, rng: 0 if state[0] > right or state[1] < 0 else 2


def throttle(policy, force):
    """The same by the force of the continuous car."""
    return lambda t, state, rng: force * (policy(t, state, rng) - 1)


def acrobot_random(t, state, rng):
    return int(rng.integers(3))


def acrobot_pump(t, state, rng):
    """Turns the second link the way it turns: energy grows until the free end is above the line."""
    return 2 if state[3] >= 0 else 0


# (name, policy) of every episode, and where it is placed if not where the environment puts it; its seed is its index.
CART_POLE = (
    [("random", cart_pole_random)] * 8
    + [("constant", cart_pole_constant(a)) for a in (0, 1)]
    + [("balance", cart_pole_balance())] * 4
    + [("balance-noisy", cart_pole_balance(noise=0.2))] * 4
    + [
        (
            "balance-then-fall",
            switch(at, cart_pole_balance(noise=0.1), cart_pole_constant(action)),
        )
        for at, action in ((201, 0), (217, 1), (230, 0), (245, 1), (260, 0), (300, 1))
    ]
    + [
        ("balance-then-leave", switch(at, cart_pole_balance(), cart_pole_balance(x_target)))
        for at, x_target in ((201, 4.0), (210, -4.0), (225, 4.2), (240, -4.2), (260, 4.5), (280, -4.5))
    ]
)
PENDULUM = (
    [("uniform-within", pendulum_uniform(2.0))] * 8
    + [("uniform-beyond", pendulum_uniform(5.0))] * 8
    + [("pump", pendulum_pump(torque)) for torque in (1.0, 2.0, 3.0, 10.0)]
    + [("swing-up", pendulum_swing_up)] * 4
    + [("constant", pendulum_constant(torque)) for torque in (0.0, -0.7, 2.0, -3.5)]
)
MOUNTAIN_CAR = (
    [("random", mountain_car_random)]
    + [("pump", mountain_car_pump)] * 2
    + [("wall", mountain_car_wall(-0.1))]
)
MOUNTAIN_CAR_CONTINUOUS = (
    [("pump", throttle(mountain_car_pump, 1.0)), ("beyond", throttle(mountain_car_pump, 1.7))]
    + [("wall", throttle(mountain_car_wall(-0.4), 0.7))]
)
ACROBOT = (
    [("random", acrobot_random), ("rest", cart_pole_constant(1))]
    + [("pump", acrobot_pump)] * 2
    + [("placed", acrobot_pump, start) for start in ([3.1, -3.1, 4.0, -9.0], [-3.0, 2.9, -12.5, 28.2])]
)


# --- recording -------------------------------------------------------------------------


def short32(values):
    """float32 values as the shortest decimals that identify them."""
    return [float(str(np.float32(v))) for v in values]


def record_episode(env, seed, torque_type, name, policy, start=None):
    continuous = isinstance(env.action_space, gymnasium.spaces.Box)
    rng = np.random.default_rng([seed, 0x5EED])
    observation, _ = env.reset(seed=seed)
    if start is not None:
        env.unwrapped.state = np.array(start)
        observation = env.unwrapped._get_ob()
    states, observations, actions, rewards = [], [], [], []
    terminated = truncated = False
    while True:
        state = np.asarray(env.unwrapped.state)
        assert state.dtype in (np.float32, np.float64) and observation.dtype == np.float32
        states.append(state.tolist())
        observations.append(short32(observation))
        if terminated or truncated:
            break
        action = policy(len(actions), state, rng)
        if continuous:
            action = np.array([np.float32(action)], dtype=torque_type)
        observation, reward, terminated, truncated, _ = env.step(action)
        actions.append(action.tolist() if continuous else action)
        rewards.append(float(reward))
    return {
        "seed": seed,
        "policy": name,
        "states": states,
        "observations": observations,
        "actions": actions,
        "rewards": rewards,
        "terminated": terminated,
        "truncated": truncated,
    }


def space(box_or_discrete):
    """A space as JSON; an infinite bound becomes the string "inf" or "-inf"."""
    if isinstance(box_or_discrete, gymnasium.spaces.Discrete):
        return {"type": "Discrete", "n": int(box_or_discrete.n)}
    bounds = {
        side: [v if np.isfinite(v) else str(v) for v in short32(getattr(box_or_discrete, side))]
        for side in ("low", "high")
    }
    return {"type": "Box", "dtype": str(box_or_discrete.dtype), "shape": list(box_or_discrete.shape), **bounds}


def record(environment, plan, path, torque_type=np.float32):
    # The passive checker only warns (of torques beyond the bounds, for one); the time limit stays.
    env = gymnasium.make(environment, disable_env_checker=True)
    head = {
        "environment": environment,
        "gymnasium": gymnasium.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "command": COMMAND,
        "max_episode_steps": env.spec.max_episode_steps,
        "reward_threshold": env.spec.reward_threshold,
        "observation_space": space(env.observation_space),
        "action_space": space(env.action_space),
    }
    episodes = [record_episode(env, seed, torque_type, *episode) for seed, episode in enumerate(plan)]

    # One episode a line, so that a change of the data gives a readable diff.
    def dump(value):
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    path.write_text(dump(head)[:-1] + ',"episodes":[\n' + ",\n".join(map(dump, episodes)) + "\n]}\n")
    return episodes


def check_cart_pole(episodes):
    """The data covers what its readers rely on."""

    def ended_by(limit):
        return [e for e in episodes if e["terminated"] and limit(*e["states"][-1])]

    by_angle = ended_by(lambda x, _x_dot, theta, _theta_dot: abs(theta) > np.radians(12) and abs(x) <= 2.4)
    by_position = ended_by(lambda x, _x_dot, theta, _theta_dot: abs(x) > 2.4 and abs(theta) <= np.radians(12))
    at_limit = [e for e in episodes if e["truncated"] and len(e["actions"]) == 500]
    assert len(at_limit) >= 4
    for sign in (-1, 1):
        assert any(e["states"][-1][2] * sign > 0 and len(e["actions"]) > 200 for e in by_angle)
        assert any(e["states"][-1][0] * sign > 0 and len(e["actions"]) > 200 for e in by_position)
    print(f"CartPole-v1: {len(by_angle)} ended by angle, {len(by_position)} by position, {len(at_limit)} at the time limit")


def check_pendulum(episodes):
    assert all(e["truncated"] and not e["terminated"] and len(e["actions"]) == 200 for e in episodes)
    clipped = sum(abs(a) > 2 for e in episodes for (a,) in e["actions"])
    fast = sum(abs(speed) == 8 for e in episodes for _, speed in e["states"])
    turned = sum(any(abs(theta) > 2 * np.pi for theta, _ in e["states"]) for e in episodes)
    assert clipped and fast and turned
    print(f"Pendulum-v1: {clipped} clipped torques, {fast} states at the speed limit, {turned} episodes turn over")


def check_mountain_car(episodes, least):
    walls = sum(position == -1.2 or position == float(np.float32(-1.2)) for e in episodes for position, _ in e["states"])
    ended = [e for e in episodes if e["terminated"]]
    assert walls and len(ended) >= 2 and any(e["truncated"] for e in episodes)
    assert all(e["states"][-1][0] >= least for e in ended)
    print(f"mountain car: {walls} states at the wall, {len(ended)} episodes end at the goal")


def check_acrobot(episodes):
    ended = [e for e in episodes if e["terminated"]]
    turned = sum(abs(b[0] - a[0]) > 5 or abs(b[1] - a[1]) > 5 for e in episodes for a, b in zip(e["states"], e["states"][1:]))
    assert len(ended) >= 2 and turned and any(len(e["actions"]) == 500 for e in episodes)
    print(f"Acrobot-v1: {len(ended)} episodes reach the line, {turned} angles wrap")


if __name__ == "__main__":
    check_cart_pole(record("CartPole-v1", CART_POLE, HERE / "cart-pole-v1.json"))
    check_pendulum(record("Pendulum-v1", PENDULUM, HERE / "pendulum-v1.json"))
    check_pendulum(record("Pendulum-v1", PENDULUM, HERE / "pendulum-v1-f64.json", np.float64))
    check_mountain_car(record("MountainCar-v0", MOUNTAIN_CAR, HERE / "mountain-car-v0.json"), 0.5)
    continuous = record("MountainCarContinuous-v0", MOUNTAIN_CAR_CONTINUOUS, HERE / "mountain-car-continuous-v0.json")
    check_mountain_car(continuous, 0.45)
    check_acrobot(record("Acrobot-v1", ACROBOT, HERE / "acrobot-v1.json"))
