"""Environments of Gymnasium that go wrong when their action is 1, and one of many choices: for `tests/outside/vector-env.test.ts`."""

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Fault(gymnasium.Env):
    observation_space = spaces.Dict({"place": spaces.Discrete(3), "speed": spaces.Box(-1, 1, (2,))})
    action_space = spaces.Discrete(2, start=5)

    def __init__(self, fault="raises"):
        self._fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("a line that no one asked for")
        return self._seen(), {}

    def step(self, action):
        assert action in self.action_space
        if action == 6:
            if self._fault == "raises":
                raise RuntimeError("the wheel came off")
            if self._fault == "exits":
                os._exit(3)
            if self._fault == "hangs":
                time.sleep(1000)
            if self._fault == "nan":
                return {"place": 0, "speed": np.array([np.nan, 0], np.float32)}, 0.0, False, False, {}
        return self._seen(), 0.5, False, False, {}

    def _seen(self):
        return {"place": int(self.np_random.integers(3)), "speed": self.np_random.uniform(-1, 1, 2).astype(np.float32)}


class Choices(gymnasium.Env):
    """Of many heads: the reward names what was chosen in each, as digits of a number in base 4."""

    observation_space = spaces.Dict(
        {
            "inner": spaces.Tuple((spaces.Box(-1, 1, (2, 1)), spaces.MultiDiscrete([2, 3]))),
            "lamps": spaces.MultiBinary(2),
            "room": spaces.Discrete(4, start=7),
        }
    )
    action_space = spaces.Dict(
        {
            "buttons": spaces.MultiBinary((3,)),
            "moves": spaces.Tuple(
                (spaces.Discrete(3, start=-1), spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [5, 0]]))
            ),
        }
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        assert action in self.action_space, action
        move, grid = action["moves"]
        digits = [*action["buttons"], move + 1, grid[0, 0], grid[0, 1] - 1, grid[1, 0] - 5, grid[1, 1]]
        return self._seen(), float(sum(int(digit) * 4**k for k, digit in enumerate(digits))), False, False, {}

    def _seen(self):
        two, room = self.np_random.integers(2, size=3), int(self.np_random.integers(4))
        place = self.np_random.uniform(-1, 1, (2, 1)).astype(np.float32)
        return {"inner": (place, np.array([two[0], room % 3])), "lamps": two[1:].astype(np.int8), "room": 7 + room}


gymnasium.register("Choices-v0", Choices, max_episode_steps=50)
gymnasium.register("Fault-v0", Fault, max_episode_steps=50)
