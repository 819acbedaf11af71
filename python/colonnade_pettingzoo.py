"""Games of Colonnade and of PettingZoo: `parallel_env` and `aec_env` of `colonnade.py`.

A game of Colonnade is a game for PettingZoo: lane i of it is agent `player_i`. Observations of games with masks are dictionaries of
`observation` and `action_mask`, as in PettingZoo's classic games. Needs numpy, gymnasium 1.0 or newer, and pettingzoo 1.24 or newer.
"""

import numpy as np
from colonnade import Lanes, space_of
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import parallel_to_aec


class Game:
    """One game, in a process of its own: its spaces by agent, its columns, and whose turn it is."""

    def __init__(self, environment, seed, command, parameters):
        self._lanes = lanes = Lanes(environment, command, parameters, numLanes=0, seed=seed)
        self._columns = lanes.columns
        self._is_over = True
        self.is_in_turns = "moves" in lanes.columns
        self.id = lanes.hello["environment"]
        self.agents = [f"player_{i}" for i in range(lanes.hello["numPlayers"])]
        self.action_spaces = {agent: space_of(lanes.hello["actionSpace"]) for agent in self.agents}
        self._sizes = None
        if "actionMask" in lanes.columns:
            space = self.action_spaces[self.agents[0]]
            self._sizes = [int(space.n)] if isinstance(space, spaces.Discrete) else [int(n) for n in space.nvec]
        self.observation_spaces = {agent: self._observation_space() for agent in self.agents}
        seen = space_of(lanes.hello["observationSpace"])
        low, high = (np.tile(bound.reshape(-1), len(self.agents)) for bound in (seen.low, seen.high))
        self.state_space = spaces.Box(low, high, dtype=np.float32)

    def _observation_space(self):
        seen = space_of(self._lanes.hello["observationSpace"])
        if self._sizes is None:
            return seen
        masks = [spaces.Box(0, 1, (size,), np.int8) for size in self._sizes]
        return spaces.Dict({"observation": seen, "action_mask": masks[0] if len(masks) == 1 else spaces.Tuple(masks)})

    def reset(self, seed):
        self._lanes.ask("reset" if seed is None else f"reset {int(seed)}")
        self._is_over = False

    def step(self, actions):
        """Makes a step with an action for each agent. Raises ValueError, and changes nothing, for one that its mask forbids."""
        if self._is_over:
            raise RuntimeError(f"{self.id}: got a step, expected a reset: the game is over, or has not begun")
        missing = [agent for agent in self.agents if agent not in actions]
        if missing or len(actions) != len(self.agents):
            raise ValueError(f"{self.id}: got actions for {list(actions)}, expected one for each of {self.agents}")
        for i, agent in enumerate(self.agents):
            if not self.action_spaces[agent].contains(np.asarray(actions[agent], self.action_spaces[agent].dtype)[()]):
                raise ValueError(f"{self.id} {agent}: got {actions[agent]}, expected one of {self.action_spaces[agent]}")
            if self._sizes is not None:
                self._check_legal(i, np.atleast_1d(actions[agent]))
            self._columns["action"][i] = actions[agent]
        self._lanes.ask("step")
        self._is_over = any(bool(end) for flag in ("terminated", "truncated") for end in self._columns[flag])

    def _check_legal(self, i, choices):
        for k, mask in enumerate(self._masks(i)):
            if mask[choices[k]] == 0:
                legal = np.flatnonzero(mask).tolist()
                raise ValueError(f"{self.id} {self.agents[i]}: got action {choices[k]}, expected a legal one: {legal}")

    def _masks(self, i):
        return np.split(self._columns["actionMask"][i].astype(np.int8), np.cumsum(self._sizes)[:-1])

    def seen(self, agent):
        i = self.agents.index(agent)
        observation = self._columns["observation"][i].copy()
        if self._sizes is None:
            return observation
        masks = self._masks(i)
        return {"observation": observation, "action_mask": masks[0] if len(masks) == 1 else tuple(masks)}

    def state(self):
        return self._columns["observation"].reshape(-1).copy()

    def told(self, name, kind):
        """A column by agent."""
        return {agent: kind(self._columns[name][i]) for i, agent in enumerate(self.agents)}

    def mover(self):
        """Whose turn it is, in a game that is not over."""
        moving = [agent for agent, moves in self.told("moves", bool).items() if moves]
        if len(moving) != 1:
            raise RuntimeError(f"{self.id}: got a turn of {moving or 'no one'}, expected one player's")
        return moving[0]

    def waiting(self, agent):
        """The only action of a player that waits."""
        choices = [int(np.flatnonzero(mask)[0]) for mask in self._masks(self.agents.index(agent))]
        return choices[0] if len(choices) == 1 else choices

    def close(self):
        self._lanes.close()


class ParallelGame(ParallelEnv):
    """A game of Colonnade whose players act at once. In a game in turns, the waiting player's mask allows one choice.

    environment: an id that `colonnade environments` lists, or the path of a module that exports one environment.
    command: how Colonnade's command line is called, e.g. ["node", "path/to/dist/src/cli/main.js"].
    parameters: of the environment, e.g. {"predators": 3}.
    """

    def __init__(self, environment, seed=0, command=("npx", "colonnade"), parameters=None):
        self._game = game = Game(environment, seed, command, parameters)
        self.metadata = {"name": game.id, "render_modes": [], "is_parallelizable": True}
        self.render_mode = None
        self.possible_agents = list(game.agents)
        self.agents = []
        self.observation_spaces, self.action_spaces = game.observation_spaces, game.action_spaces
        self.state_space = game.state_space

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        """A new game. With a seed it begins as every other one with that seed does."""
        self._game.reset(seed)
        self.agents = list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        game = self._game
        game.step(actions)
        terminated, truncated = game.told("terminated", bool), game.told("truncated", bool)
        self.agents = [agent for agent in self.agents if not (terminated[agent] or truncated[agent])]
        infos = {agent: {} for agent in self.possible_agents}
        return self._seen(), game.told("reward", float), terminated, truncated, infos

    def _seen(self):
        return {agent: self._game.seen(agent) for agent in self.possible_agents}

    def state(self):
        """The observations of all players, one after another."""
        return self._game.state()

    def close(self):
        self._game.close()


class TurnGame(AECEnv):
    """A game of Colonnade in turns; its arguments are those of `ParallelGame`."""

    def __init__(self, game):
        self._game = game
        self.metadata = {"name": game.id, "render_modes": [], "is_parallelizable": False}
        self.render_mode = None
        self.possible_agents = list(game.agents)
        self.agents = []
        self.observation_spaces, self.action_spaces = game.observation_spaces, game.action_spaces
        self.state_space = game.state_space

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        self._game.reset(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self._skip_agent_selection = None
        self.agent_selection = self._game.mover()

    def observe(self, agent):
        return self._game.seen(agent)

    def step(self, action):
        agent, game = self.agent_selection, self._game
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        others = [other for other in self.agents if other != agent]
        game.step({agent: action, **{other: game.waiting(other) for other in others}})
        self._cumulative_rewards[agent] = 0.0
        self.rewards = game.told("reward", float)
        self.terminations, self.truncations = game.told("terminated", bool), game.told("truncated", bool)
        self._accumulate_rewards()
        is_over = any(self.terminations.values()) or any(self.truncations.values())
        self.agent_selection = self.agents[0] if is_over else game.mover()

    def state(self):
        """The observations of all players, one after another."""
        return self._game.state()

    def close(self):
        self._game.close()


def aec_game(environment, seed, command, parameters):
    """A game in turns as it is played; one whose players act at once as PettingZoo makes them act one after another."""
    game = Game(environment, seed, command, parameters)
    if game.is_in_turns:
        return TurnGame(game)
    game.close()
    return parallel_to_aec(ParallelGame(environment, seed, command, parameters))
