"""Colonnade and Gymnasium, side by side: columns in a file that both processes map, and a line of text as the doorbell.

    ColonnadeVectorEnv("CartPole-v1", 1024)          Colonnade's worlds as a gymnasium.vector.VectorEnv
    parallel_env("PredatorPrey-v0")                  a game of Colonnade as a pettingzoo.ParallelEnv
    aec_env("ConnectFour-v0")                        and as a pettingzoo.AECEnv
    python colonnade.py '{"id": "LunarLander-v3"}'   a Gymnasium environment for Colonnade (what `fromGymnasium` starts)
    python colonnade_pettingzoo.py '{"id": "mpe2.simple_spread_v3"}'       a game of PettingZoo (`fromPettingZoo`)

The protocol, version 1, is the same both ways. One process serves, the other asks. The server makes a file, in /dev/shm where there is one, and
writes a line of JSON that says where it is, what its columns are and which spaces it has; then it reads a line for each request from its
standard input, and answers with `ok`, or with `error` and JSON. Requests and answers lie in the columns. Whoever reads the end of a pipe
knows that the other is gone: the server then ends, the client raises. Who asks deletes the file as soon as it is mapped.

Needs numpy and gymnasium 1.0 or newer, and for games of several players pettingzoo (`colonnade_pettingzoo.py`).
"""

import faulthandler
import json
import mmap
import os
import subprocess
import sys
import tempfile
import traceback

import gymnasium
import numpy as np
from gymnasium import spaces

PROTOCOL = "colonnade-columns"
VERSION = 1
DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "u32": np.uint32, "u8": np.uint8}
ALIGNMENT = 64
COMMAND = ("npx", "colonnade")
ERROR_BYTES = 3000
"""Of an error, at most: a line that fits into a pipe at once."""


def map_columns(path, columns):
    """The columns of a file as arrays over its pages."""
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    return {
        name: np.ndarray(spec["shape"], DTYPES[spec["type"]], memory, spec["offset"]) for name, spec in columns.items()
    }


def space_of(json_space):
    """A Gymnasium space from Colonnade's."""
    kind = json_space["kind"]
    if kind == "discrete":
        return spaces.Discrete(json_space["n"])
    if kind == "multi-discrete":
        return spaces.MultiDiscrete(json_space["sizes"])
    low, high = (np.array([float(x) for x in json_space[k]], np.float32) for k in ("low", "high"))
    return spaces.Box(low.reshape(json_space["shape"]), high.reshape(json_space["shape"]), dtype=np.float32)


class Lanes:
    """Lanes of an environment, served by a process of its own (Node): `colonnade serve-env` with these words."""

    def __init__(self, environment, command, parameters, **keys):
        given = {**keys, **{f"environment.{key}": value for key, value in (parameters or {}).items()}}
        words = [*command, "serve-env", environment, *(f"{key}={value}" for key, value in given.items())]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.hello = json.loads(self._read_line())
        if self.hello["protocol"] != PROTOCOL or self.hello["version"] != VERSION:
            self.close()
            raise RuntimeError(f"got {self.hello['protocol']} {self.hello['version']}, expected {PROTOCOL} {VERSION}")
        self.columns = map_columns(self.hello["file"], self.hello["columns"])
        os.unlink(self.hello["file"])
        os.rmdir(os.path.dirname(self.hello["file"]))

    def ask(self, line):
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._read_line()
        if answer != "ok":
            raise ValueError(json.loads(answer[len("error ") :])["message"])

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def _read_line(self):
        line = self.process.stdout.readline().decode()
        if line == "":
            raise RuntimeError(f"Colonnade's process is gone, with exit code {self.process.wait()}: see its errors above")
        return line.rstrip("\n")


class ColonnadeVectorEnv(gymnasium.vector.VectorEnv):
    """Lanes of an environment of Colonnade, which runs in a process of its own (Node).

    environment: an id that `colonnade environments` lists, or the path of a module that exports one environment.
    autoreset: "next-step" (Gymnasium's default) or "same-step" (the last observation is then in info["final_obs"]).
    command: how Colonnade's command line is called, e.g. ["node", "path/to/dist/src/cli/main.js"].
    parameters: of the environment, e.g. {"length": 12}.
    copy: give arrays of their own; without, they are the columns, which the next step overwrites.
    """

    def __init__(self, environment, num_envs, seed=0, autoreset="next-step", command=COMMAND, parameters=None, copy=True):
        self._lanes = Lanes(environment, command, parameters, numLanes=num_envs, seed=seed, autoreset=autoreset)
        self._process = self._lanes.process
        self._columns = self._lanes.columns
        self._copy = copy
        self.num_envs = num_envs
        self.single_observation_space = space_of(self._lanes.hello["observationSpace"])
        self.single_action_space = space_of(self._lanes.hello["actionSpace"])
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        mode = gymnasium.vector.AutoresetMode.SAME_STEP if autoreset == "same-step" else gymnasium.vector.AutoresetMode.NEXT_STEP
        self.metadata = {"autoreset_mode": mode}
        self._is_same_step = autoreset == "same-step"

    def reset(self, *, seed=None, options=None):
        """A new episode in every lane. With a seed it begins as every other world with that seed does."""
        if isinstance(seed, (list, tuple, np.ndarray)):
            raise ValueError(f"seed: got {len(seed)} of them, expected one: each lane's numbers follow from it and the lane")
        self._lanes.ask("reset" if seed is None else f"reset {int(seed)}")
        return self._take("observation"), self._info()

    def step(self, actions):
        np.copyto(self._columns["action"], np.asarray(actions).reshape(self._columns["action"].shape), casting="unsafe")
        self._lanes.ask("step")
        flags = [self._columns[name].astype(bool) for name in ("terminated", "truncated")]
        return self._take("observation"), self._take("reward"), *flags, self._info(flags[0] | flags[1])

    def close_extras(self, **kwargs):
        self._lanes.close()

    def _info(self, ended=None):
        info = {}
        if "actionMask" in self._columns:
            info["action_mask"] = self._take("actionMask")
        if self._is_same_step and ended is not None and ended.any():
            info["final_obs"] = self._take("finalObservation")
            info["_final_obs"] = ended
        return info

    def _take(self, name):
        return self._columns[name].copy() if self._copy else self._columns[name]


def parallel_env(environment, seed=0, command=COMMAND, parameters=None):
    """A game as a pettingzoo.ParallelEnv: its players act at once (`colonnade_pettingzoo.ParallelGame`).

    environment: an id that `colonnade environments` lists, or the path of a module that exports one environment.
    command: how Colonnade's command line is called, e.g. ["node", "path/to/dist/src/cli/main.js"].
    parameters: of the environment, e.g. {"predators": 3}.
    """
    from colonnade_pettingzoo import Game, ParallelGame

    return ParallelGame(Game(environment, seed, command, parameters))


def aec_env(environment, seed=0, command=COMMAND, parameters=None):
    """A game as a pettingzoo.AECEnv: its players act one after another (`colonnade_pettingzoo.TurnGame`). It has the arguments of `parallel_env`."""
    from colonnade_pettingzoo import aec_game

    return aec_game(environment, seed, command, parameters)


def parts_of(space):
    """The spaces of a Dict or a Tuple, in their order."""
    return space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces


def sizes_of(space):
    """The sizes of all choices of a space, one after another; None where it has others than choices."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.reshape(-1)]
    if isinstance(space, spaces.MultiBinary):
        return [2] * int(np.prod(space.shape))
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return None
    sizes = [sizes_of(part) for part in parts_of(space)]
    return None if None in sizes else sum(sizes, [])


def chosen_of(space, numbers):
    """The value of a space of choices from an iterator over their numbers, each from 0."""
    if isinstance(space, spaces.Discrete):
        return int(next(numbers)) + int(space.start)
    if isinstance(space, spaces.Dict):
        return {name: chosen_of(part, numbers) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(chosen_of(part, numbers) for part in space.spaces)
    value = np.array([next(numbers) for _ in range(int(np.prod(space.shape)))], space.dtype).reshape(space.shape)
    return value + space.start if isinstance(space, spaces.MultiDiscrete) else value


def json_of(space, what):
    """Colonnade's space from Gymnasium's. Bounds of observations are not told: environments are not held to them."""
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n)}
    if isinstance(space, spaces.Box):
        low, high = ([str(x) for x in bound.astype(np.float64).reshape(-1)] for bound in (space.low, space.high))
        return {"kind": "box", "shape": list(space.shape) or [1], "low": low, "high": high}
    sizes = sizes_of(space)
    if sizes:
        return {"kind": "multi-discrete", "sizes": sizes}
    raise TypeError(f"{what}: got {space}, expected a Box, or choices: Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them")


def named_parts(space, name=None):
    """What the elements of a flattened space are, in their order: `spaces.flatten` has choices one-hot."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        names = space.spaces if isinstance(space, spaces.Dict) else range(len(space.spaces))
        inner = zip(names, parts_of(space))
        return [part for key, each in inner for part in named_parts(each, str(key) if name is None else f"{name}.{key}")]
    name = "observation" if name is None else name
    is_choice = isinstance(space, (spaces.Discrete, spaces.MultiDiscrete))
    return [{"name": name, "space": json_of(space if is_choice else spaces.utils.flatten_space(space), f"observation {name}")}]


def flattener(space):
    """The box of a space's observations, and the function that gives one of them for it."""
    if isinstance(space, spaces.Box):
        return space, lambda seen: seen
    return spaces.utils.flatten_space(space), lambda seen: spaces.utils.flatten(space, seen)


def action_of(space, given):
    """An action of a space from the numbers of a row."""
    if isinstance(space, spaces.Box):
        return given.astype(space.dtype).reshape(space.shape)
    return chosen_of(space, iter(given))


class Server:
    """Environments, one for each row that was asked for, made when it is. Those of games have a place in their row for each player.

    A subclass gives the space of `actions`, that of `seen`, and `hello`; it makes an environment, and fills the columns in `reset` and `step`.
    """

    num_players = 1
    num_choices = 0
    has_moves = False

    def __init__(self):
        self._envs = {}

    def told(self, seen, actions, limit, threshold, **more):
        self._width = int(np.prod(seen.shape))
        self._actions = actions
        return {
            "protocol": PROTOCOL,
            "version": VERSION,
            "gymnasium": gymnasium.__version__,
            "observationSpace": json_of(seen, "observation space"),
            "actionSpace": json_of(actions, "action space"),
            "maxEpisodeSteps": limit,
            "returnThreshold": threshold,
            **more,
        }

    def serve(self, num_rows, timeout):
        """Answers requests until there are no more; ends the process where one takes longer than `timeout` seconds."""
        is_box = isinstance(self._actions, spaces.Box)
        action_size = int(np.prod(self._actions.shape)) if is_box else len(sizes_of(self._actions))
        action_type = "f32" if is_box else "i32"
        players = self.num_players
        columns, offset = {}, 0
        for name, kind, width in [
            ("row", "u32", 1),
            ("seed", "u32", 1),
            ("action", action_type, players * action_size),
            ("observation", "f32", players * self._width),
            ("reward", "f64", players),
            ("terminated", "u8", players),
            ("truncated", "u8", players),
            ("actionMask", "u8", players * self.num_choices),
            ("moves", "u8", players if self.has_moves else 0),
        ]:
            if width == 0:
                continue
            columns[name] = {"type": kind, "offset": offset, "shape": [num_rows, width]}
            size = num_rows * width * np.dtype(DTYPES[kind]).itemsize
            offset += -(-size // ALIGNMENT) * ALIGNMENT
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        fd, path = tempfile.mkstemp(prefix="colonnade-", dir=folder)
        os.ftruncate(fd, offset)
        os.close(fd)
        self._columns = map_columns(path, columns)
        self.say({**self.hello, "file": path, "bytes": offset, "columns": columns})
        for line in sys.stdin:
            word, count = line.split()
            faulthandler.dump_traceback_later(timeout, exit=True)
            try:
                place = 0
                for place in range(int(count)):
                    row = int(self._columns["row"][place, 0])
                    if word == "reset":
                        if row not in self._envs:
                            self._envs[row] = self.make()
                        self.reset(place, self._envs[row], int(self._columns["seed"][place, 0]))
                    else:
                        self.step(place, self._envs[row])
                answer = "ok"
            except Exception:
                message = traceback.format_exc()[-ERROR_BYTES:]
                row = int(self._columns["row"][place, 0])
                self._envs.pop(row, None)  # Its next episode begins with a new one.
                answer = "error " + json.dumps({"row": row, "message": message})
            faulthandler.cancel_dump_traceback_later()
            self._out.write(answer + "\n")
            self._out.flush()

    def say(self, hello):
        # What environments print must not ring the doorbell: it goes where errors go.
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._out.write(json.dumps(hello) + "\n")
        self._out.flush()


class GymnasiumServer(Server):
    def __init__(self, options):
        super().__init__()
        self.make = lambda: gymnasium.make(options["id"], **options.get("kwargs", {}))
        env = self._envs[0] = self.make()
        flat, self._flatten = flattener(env.observation_space)
        more = {} if isinstance(env.observation_space, spaces.Box) else {"parts": named_parts(env.observation_space)}
        self.hello = self.told(flat, env.action_space, env.spec.max_episode_steps, env.spec.reward_threshold, **more)

    def reset(self, place, env, seed):
        seen, _ = env.reset(seed=seed)
        self._see(place, seen)

    def step(self, place, env):
        seen, reward, terminated, truncated, _ = env.step(action_of(self._actions, self._columns["action"][place]))
        self._see(place, seen)
        for name, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
            self._columns[name][place, 0] = value

    def _see(self, place, seen):
        self._columns["observation"][place] = np.asarray(self._flatten(seen), np.float32).reshape(-1)


def answer(server):
    """What a script does with its argument: it says what it would serve, or serves it."""
    options = json.loads(sys.argv[1])
    serving = server(options)
    if "numLanes" in options:
        serving.serve(options["numLanes"], options["timeoutSeconds"])
    else:
        print(json.dumps(serving.hello))


if __name__ == "__main__":
    answer(GymnasiumServer)
