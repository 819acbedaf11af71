#!/usr/bin/env python3
"""Stable-Baselines3's PPO, for `npm run bench -- gymnasium`: on LunarLander-v3, and on CartPole-v1 as Gymnasium or Colonnade steps it.

    gymnasium_twins.py --environment LunarLander-v3 --lanes dummy|subproc
    gymnasium_twins.py --environment CartPole-v1 --lanes colonnade|sync --command node dist/src/cli/main.js

Each line of standard input asks for a run, each answer is a line of JSON:

    train N   N updates of PPO, rollouts included: {"seconds", "meanReturn", "version"}
    step N    N steps of all lanes by actions at random, without any learning: {"seconds"}
"""

import argparse
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# stable_baselines3.py lies beside this file: keep its folder off the import path.
sys.path = [entry for entry in sys.path if Path(entry).resolve() != HERE]
sys.path.append(str(HERE.parent.parent / "python"))

import gymnasium
import numpy as np
import stable_baselines3
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecMonitor

SETTINGS = {
    "LunarLander-v3": dict(
        numLanes=16, n_steps=256, batch_size=64, n_epochs=4, gae_lambda=0.98, gamma=0.999, ent_coef=0.01, learning_rate=3e-4
    ),
    "CartPole-v1": dict(
        numLanes=64, n_steps=128, batch_size=1024, n_epochs=4, gae_lambda=0.95, gamma=0.99, ent_coef=0.0, learning_rate=2e-3
    ),
}


class OfVectorEnv(VecEnv):
    """A vector environment of Gymnasium, with same-step autoreset, as Stable-Baselines3 has them."""

    def __init__(self, envs):
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self):
        return self.envs.reset(seed=1)[0].copy()

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        seen, reward, terminated, truncated, info = self.envs.step(self.actions)
        done = terminated | truncated
        infos = [{} for _ in range(self.num_envs)]
        for n in np.flatnonzero(done):
            infos[n] = {"terminal_observation": info["final_obs"][n], "TimeLimit.truncated": bool(truncated[n] and not terminated[n])}
        return seen.copy(), reward.astype(np.float32), done, infos

    def close(self):
        self.envs.close()

    def get_attr(self, name, indices=None):
        return [getattr(self.envs, name, None)] * self.num_envs

    def set_attr(self, name, value, indices=None):
        raise NotImplementedError

    def env_method(self, name, *args, indices=None, **kwargs):
        raise NotImplementedError

    def env_is_wrapped(self, wrapper, indices=None):
        return [False] * self.num_envs


def lanes_of(arguments, count):
    name, kind = arguments.environment, arguments.lanes
    if kind in ("dummy", "subproc"):
        return make_vec_env(name, n_envs=count, seed=1, vec_env_cls=DummyVecEnv if kind == "dummy" else SubprocVecEnv)
    if kind == "colonnade":
        from colonnade import ColonnadeVectorEnv

        return VecMonitor(OfVectorEnv(ColonnadeVectorEnv(name, count, autoreset="same-step", command=arguments.command)))
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    return VecMonitor(OfVectorEnv(gymnasium.make_vec(name, count, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode})))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", choices=list(SETTINGS), required=True)
    parser.add_argument("--lanes", choices=["dummy", "subproc", "colonnade", "sync"], required=True)
    parser.add_argument("--command", nargs="+", default=["colonnade"])
    arguments = parser.parse_args()
    settings = dict(SETTINGS[arguments.environment])
    count = settings.pop("numLanes")
    lanes = lanes_of(arguments, count)
    model = PPO("MlpPolicy", lanes, seed=1, device="cpu", **settings)
    version = stable_baselines3.__version__
    for line in sys.stdin:
        what, number = line.split()
        begun = time.perf_counter()
        if what == "train":
            model.learn(int(number) * count * settings["n_steps"], reset_num_timesteps=False)
            seconds = time.perf_counter() - begun
            returns = [episode["r"] for episode in model.ep_info_buffer]
            told = {"seconds": seconds, "meanReturn": float(np.mean(returns)) if returns else None, "version": version}
        else:
            actions = np.random.default_rng(1).integers(0, lanes.action_space.n, (int(number), count))
            lanes.reset()
            begun = time.perf_counter()
            for action in actions:
                lanes.step(action)
            told = {"seconds": time.perf_counter() - begun, "meanReturn": None, "version": version}
        print(json.dumps(told), flush=True)
    lanes.close()


if __name__ == "__main__":  # SubprocVecEnv starts this file again.
    main()
