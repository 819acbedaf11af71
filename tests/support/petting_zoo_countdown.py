"""A game of PettingZoo whose players end one after another: for `tests/outside/petting-zoo.test.ts`, which computes it again.

Player i begins with 2 + (seed + i) % 5, and takes 1, 2 or 3 of it in each step, at most what is left. It is done when nothing is left, and
player 2 is truncated where others terminate. Rewards: what is taken, and 10 · i. `fault` is what goes wrong, in the second step unless it says.
"""

import os
import time

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils import parallel_to_aec


class Countdown(ParallelEnv):
    metadata = {"name": "countdown_v0"}

    def __init__(self, uneven=False, fault=None, masks="observations"):
        self.possible_agents = [f"player_{i}" for i in range(3)]
        self.agents = []
        self._is_masked = masks == "observations"  # Otherwise the masks are in infos.
        seen = spaces.Box(0, 9, (2,), np.int64)
        if self._is_masked:
            seen = spaces.Dict({"observation": seen, "action_mask": spaces.Box(0, 1, (3,), np.int8)})
        self._seen = {agent: seen for agent in self.possible_agents}
        self._acts = {agent: spaces.Discrete(4 if uneven and agent == "player_1" else 3) for agent in self.possible_agents}
        self._fault = fault

    def observation_space(self, agent):
        return self._seen[agent]

    def action_space(self, agent):
        return self._acts[agent]

    def reset(self, seed=None, options=None):
        self.agents = self.possible_agents[1:] if self._fault == "absent" else list(self.possible_agents)
        self._left = {agent: 2 + (seed + i) % 5 for i, agent in enumerate(self.possible_agents)}
        self._steps = 0
        return self._shown(), self._infos()

    def step(self, actions):
        assert list(actions) == self.agents, actions
        assert self._fault != "raises", "the clock stopped"
        self._steps += 1
        if self._steps == 2:
            assert not (self._fault == "raises where player 1 has 1 left" and self._left["player_1"] == 1), "the clock stopped"
            if self._fault == "exits":
                os._exit(3)
            if self._fault == "hangs":
                time.sleep(1000)
        for agent, action in actions.items():
            assert action + 1 <= self._left[agent], (agent, action)
            self._left[agent] -= action + 1
        shown, infos = self._shown(), self._infos()
        rewards = {agent: 1 + action + 10 * self.possible_agents.index(agent) for agent, action in actions.items()}
        done = {agent: self._left[agent] == 0 for agent in actions}
        ends = {agent: done[agent] and agent != "player_2" for agent in actions}
        cuts = {agent: done[agent] and agent == "player_2" for agent in actions}
        self.agents = [agent for agent in self.agents if not done[agent]]
        return shown, rewards, ends, cuts, infos

    def _shown(self):
        seen = {agent: np.array([self._left[agent], self._steps]) for agent in self.agents}
        if not self._is_masked:
            return seen
        return {agent: {"observation": seen[agent], "action_mask": self._mask(agent)} for agent in self.agents}

    def _infos(self):
        return {agent: {} if self._is_masked else {"action_mask": self._mask(agent)} for agent in self.agents}

    def _mask(self, agent):
        if self._fault in ("a short mask", "a large mask"):
            return np.ones(1, np.int8) if self._fault == "a short mask" else np.full(3, 5, np.int8)
        return np.array([self._left[agent] > action for action in range(3)], np.int8)


def parallel_env(**kwargs):
    return Countdown(**kwargs)


def env(**kwargs):
    return parallel_to_aec(Countdown(**kwargs))
