"""Games of Colonnade for PettingZoo (`parallel_env` and `aec_env` of `colonnade.py`), and games of PettingZoo for Colonnade (`fromPettingZoo`).

A game of Colonnade is a game for PettingZoo: lane i of it is agent `player_i`. Observations of games with masks are dictionaries of
`observation` and `action_mask`, as in PettingZoo's classic games. Needs numpy, gymnasium 1.0 or newer, and pettingzoo 1.24 or newer.
"""

import importlib

import numpy as np
from colonnade import Lanes, Server, action_of, answer, flattener, sizes_of, space_of
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
            space, given = self.action_spaces[agent], np.asarray(actions[agent])
            if not np.can_cast(given.dtype, space.dtype, "same_kind") or not space.contains(given.astype(space.dtype)[()]):
                raise ValueError(f"{self.id} {agent}: got {actions[agent]}, expected one of {space}")
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


class Played:
    """What `ParallelGame` and `TurnGame` share: a game's agents, spaces and state."""

    def __init__(self, game):
        self._game = game
        self.metadata = {"name": game.id, "render_modes": [], "is_parallelizable": isinstance(self, ParallelEnv)}
        self.render_mode = None
        self.possible_agents = list(game.agents)
        self.agents = []
        self.observation_spaces, self.action_spaces = game.observation_spaces, game.action_spaces
        self.state_space = game.state_space

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def state(self):
        """The observations of all players, one after another."""
        return self._game.state()

    def close(self):
        self._game.close()


class ParallelGame(Played, ParallelEnv):
    """A game of Colonnade whose players act at once. In a game in turns, the waiting player's mask allows one choice."""

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


class TurnGame(Played, AECEnv):
    """A game of Colonnade in turns."""

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


def aec_game(environment, seed, command, parameters):
    """A game in turns as it is played; one whose players act at once as PettingZoo makes them act one after another."""
    game = Game(environment, seed, command, parameters)
    return TurnGame(game) if game.is_in_turns else parallel_to_aec(ParallelGame(game))


MASK = "action_mask"


def same(space_of_agent, agents, what):
    """The space that all agents have."""
    first = space_of_agent(agents[0])
    for agent in agents[1:]:
        if space_of_agent(agent) != first:
            got = f"{first} for {agents[0]} and {space_of_agent(agent)} for {agent}"
            raise TypeError(f"{what} spaces: got {got}, expected one space for all agents")
    return first


class PettingZooServer(Server):
    """Games of a module with `parallel_env` or `env`. An agent that is done sees zeros until the game is over for all."""

    def __init__(self, options):
        super().__init__()
        module = importlib.import_module(options["id"])
        api = options.get("api") or ("parallel" if hasattr(module, "parallel_env") else "aec")
        maker = getattr(module, "parallel_env" if api == "parallel" else "env", None)
        if maker is None:
            raise TypeError(f"{options['id']}: got a module without {'parallel_env' if api == 'parallel' else 'env'}")
        self.make = lambda: maker(**options.get("kwargs", {}))
        env = self._envs[0] = self.make()
        self._agents = list(env.possible_agents)
        self._ends = {}
        """By row: whether each agent has terminated, and whether it was truncated."""
        self.num_players = len(self._agents)
        actions = same(env.action_space, self._agents, "action")
        seen = same(env.observation_space, self._agents, "observation")
        self._parts = None
        if isinstance(seen, spaces.Dict) and MASK in seen.spaces:
            self._parts = [key for key in seen.spaces if key != MASK]
            rest = {key: seen.spaces[key] for key in self._parts}
            seen = rest[self._parts[0]] if len(rest) == 1 else spaces.Dict(rest)
        flat, self._flatten = flattener(seen)
        self._own = int(np.prod(flat.shape))
        shared = int(np.prod(env.state_space.shape)) if options.get("state") else 0
        if shared > 0:
            flat = spaces.Box(-np.inf, np.inf, (self._own + shared,), np.float32)
        self._sizes = [] if isinstance(actions, spaces.Box) else sizes_of(actions) or []
        self.num_choices = sum(self._sizes)
        self._is_parallel = api == "parallel"
        self.has_moves = not self._is_parallel
        cycles = getattr(env.unwrapped, "max_cycles", None)
        limit = cycles if cycles is None or self._is_parallel else int(cycles) * self.num_players
        more = {"numPlayers": self.num_players, "actionMask": self.num_choices > 0, "moves": self.has_moves, "criticOnly": shared}
        self.hello = self.told(flat, actions, limit, None, **more)

    def reset(self, place, env, seed):
        self._ends[int(self._columns["row"][place, 0])] = np.zeros((2, self.num_players), bool)
        if self._is_parallel:
            seen, infos = env.reset(seed=seed)
            self._show(place, env, seen, infos)
        else:
            env.reset(seed=seed)
            self._skip(env)
            self._show(place, env, {agent: env.observe(agent) for agent in env.agents}, env.infos)

    def step(self, place, env):
        given = self._of(place, "action")
        live = list(env.agents)
        actions = {agent: action_of(self._actions, given[self._agents.index(agent)]) for agent in live}
        if self._is_parallel:
            seen, rewards, terminations, truncations, infos = env.step(actions)
        else:
            env.step(actions[env.agent_selection])
            rewards, terminations, truncations = dict(env.rewards), dict(env.terminations), dict(env.truncations)
            seen, infos = {}, dict(env.infos)
            if any(terminations.values()) or any(truncations.values()):
                seen = {agent: env.observe(agent) for agent in env.agents}
            self._skip(env)
            if env.agents:
                seen = {agent: env.observe(agent) for agent in env.agents}
                infos = env.infos
        ends = self._ends[int(self._columns["row"][place, 0])]
        self._of(place, "reward")[:] = [rewards.get(agent, 0) if agent in live else 0 for agent in self._agents]
        for i, agent in enumerate(self._agents):
            if agent in env.agents:
                ends[:, i] = False
            elif agent in live:
                is_truncated = bool(truncations.get(agent, False))
                ends[:, i] = bool(terminations.get(agent, False)) or not is_truncated, is_truncated
        if not env.agents:
            ends[0] |= ~ends.any(axis=0)  # Of agents that never took part.
        self._of(place, "terminated")[:], self._of(place, "truncated")[:] = ends
        self._show(place, env, {agent: told for agent, told in seen.items() if agent in live or agent in env.agents}, infos)

    def _skip(self, env):
        """Takes the steps of agents that are done, which have no action."""
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)

    def _show(self, place, env, seen, infos):
        """Writes what agents see, the last of it if the game is over, and who may do what."""
        observation, mask = self._of(place, "observation"), None
        if self.num_choices > 0:
            mask = self._of(place, "actionMask")
            mask[:] = np.concatenate([np.arange(size) == 0 for size in self._sizes])
        if observation.shape[1] > self._own:
            observation[:, self._own :] = np.ravel(env.state())
        for i, agent in enumerate(self._agents):
            is_live = agent in env.agents
            moves = is_live and (self._is_parallel or agent == env.agent_selection)
            if self.has_moves:
                self._of(place, "moves")[i] = moves
            if not is_live and (env.agents or agent not in seen):
                observation[i, : self._own] = 0
                continue
            told = seen[agent]
            legal = infos.get(agent, {}).get(MASK) if self._parts is None else told[MASK]
            if self._parts is not None:
                told = told[self._parts[0]] if len(self._parts) == 1 else {key: told[key] for key in self._parts}
            observation[i, : self._own] = np.asarray(self._flatten(told), np.float32).reshape(-1)
            if moves and mask is not None:
                mask[i] = 1 if legal is None else self._legal(agent, legal)

    def _legal(self, agent, given):
        """The mask of an agent's choices, one after another."""
        mask = np.concatenate([np.ravel(part) for part in (given if isinstance(given, tuple) else (given,))])
        if mask.shape != (self.num_choices,) or not ((mask == 0) | (mask == 1)).all():
            raise ValueError(f"{MASK} of {agent}: got {mask.tolist()}, expected {self.num_choices} numbers, each 0 or 1")
        return mask

    def _of(self, place, name):
        """A row of a column, by player."""
        return self._columns[name][place].reshape(self.num_players, -1) if name in SEVERAL else self._columns[name][place]


SEVERAL = ("action", "observation", "actionMask")
"""Columns with several elements for each player."""


if __name__ == "__main__":
    answer(PettingZooServer)
