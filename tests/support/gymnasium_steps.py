"""Steps an environment of Gymnasium by itself: reads {id, seed, actions} as JSON, writes what it answered."""

import json
import sys

import gymnasium

request = json.loads(sys.argv[1])
env = gymnasium.make(request["id"])
seen, _ = env.reset(seed=request["seed"])
steps = []
for action in request["actions"]:
    before = seen
    seen, reward, terminated, truncated, _ = env.step(action)
    steps.append({"observation": [float(x) for x in before], "reward": float(reward), "ended": bool(terminated or truncated)})
    if terminated or truncated:
        break
print(json.dumps(steps))
