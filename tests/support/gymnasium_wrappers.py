"""Goes through steps with Gymnasium's own wrappers, from the states and with the actions of a file, and writes what came of them as JSON.

{"wrapped": [{"id", "limit", "rescale", "repeat", "frames", "around", "episodes": [{"state", "actions"}]}],
 "normalized": {"state", "actions", "gamma"}}
"""

import json
import sys

import gymnasium
import numpy as np
from gymnasium.wrappers import FrameStackObservation, NormalizeObservation, NormalizeReward, RescaleAction, TimeLimit


class Begun(gymnasium.Wrapper):
    """Begins in the state that it is given."""

    state = None

    def reset(self, **options):
        seen, info = self.env.reset(**options)
        self.unwrapped.state = np.array(self.state, dtype=np.float64)
        if hasattr(self.unwrapped, "_get_obs"):
            return self.unwrapped._get_obs(), info
        return np.array(self.state, dtype=np.float32), info


class Repeated(gymnasium.Wrapper):
    """Gymnasium has none whose observation is the last one; sums and ends are those of its MaxAndSkipObservation."""

    times = 1

    def step(self, action):
        total = 0.0
        for _ in range(self.times):
            seen, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return seen, total, terminated, truncated, info


def action_of(env, action):
    return np.array(action, dtype=np.float32) if isinstance(env.action_space, gymnasium.spaces.Box) else int(action[0])


def wrapped(case):
    begun = Begun(gymnasium.make(case["id"]).unwrapped)
    env = begun if case["limit"] is None else TimeLimit(begun, case["limit"])
    if case["rescale"] is not None:
        env = RescaleAction(env, *map(np.float32, case["rescale"]))
    if case["repeat"] > 1:
        env = Repeated(env)
        env.times = case["repeat"]
    env = FrameStackObservation(env, case["frames"])
    if case["around"] is not None:
        env = TimeLimit(env, case["around"])
    told = []
    for episode in case["episodes"]:
        begun.state = episode["state"]
        seen, _ = env.reset(seed=0)
        steps = []
        for action in episode["actions"]:
            step = {"observation": np.asarray(seen, dtype=np.float64).ravel().tolist()}
            seen, reward, terminated, truncated, _ = env.step(action_of(env, action))
            steps.append(step | {"reward": float(reward), "terminated": int(terminated), "truncated": int(truncated)})
            if terminated or truncated:
                break
        told.append({"steps": steps, "last": np.asarray(seen, dtype=np.float64).ravel().tolist()})
    return {"shape": list(env.observation_space.shape), "episodes": told}


def normalized(case):
    begun = Begun(gymnasium.make("Pendulum-v1").unwrapped)
    begun.state = case["state"]
    of_reward = NormalizeReward(begun, gamma=case["gamma"])
    env = NormalizeObservation(of_reward)
    env.reset(seed=0)
    for i, action in enumerate(case["actions"]):
        env.update_running_mean = i + 1 < len(case["actions"])  # What the last step led to has no row in a rollout.
        env.step(np.array(action, dtype=np.float32))
    return {
        "mean": env.obs_rms.mean.tolist(),
        "deviation": np.sqrt(env.obs_rms.var + env.epsilon).tolist(),
        "of_return": float(np.sqrt(of_reward.return_rms.var + of_reward.epsilon)),
    }


with open(sys.argv[1]) as file:
    request = json.load(file)
print(json.dumps({"wrapped": [wrapped(case) for case in request["wrapped"]], "normalized": normalized(request["normalized"])}))
