"""Asks `parallel_env` and `aec_env` what PettingZoo's users ask a game; prints what it found as JSON."""

import json
import sys

sys.path.insert(0, sys.argv[1])
command = sys.argv[2:]

import numpy as np
from colonnade import ColonnadeVectorEnv, aec_env, parallel_env
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test, state_test

SIMULTANEOUS = ("PredatorPrey-v0", "Snake-v0", "CartPole-v1")
IN_TURNS = ("ConnectFour-v0", "TicTacToeDuel-v0")
found = {"passed": []}


def passes(name, test):
    print(name, file=sys.stderr)
    test()
    found["passed"].append(name)


for game in (*SIMULTANEOUS, *IN_TURNS):
    env = parallel_env(game, command=command)
    passes(f"parallel_api_test {game}", lambda: parallel_api_test(env, num_cycles=200))
    env.close()
for game in SIMULTANEOUS:
    passes(f"parallel_seed_test {game}", lambda: parallel_seed_test(lambda: parallel_env(game, command=command), 50))
for game in (*IN_TURNS, "PredatorPrey-v0"):
    env = aec_env(game, command=command)
    passes(f"api_test {game}", lambda: api_test(env, num_cycles=200))
    if game not in IN_TURNS:  # It knows of no masks.
        both = parallel_env(game, command=command)
        passes(f"state_test {game}", lambda: state_test(env, both))
        both.close()
    env.close()
    passes(f"seed_test {game}", lambda: seed_test(lambda: aec_env(game, command=command), 50))

# The same game, lane by lane, as the vector environment tells it.
lanes = ColonnadeVectorEnv("PredatorPrey-v0", 4, command=command, parameters={"maxEpisodeSteps": 30})
env = parallel_env("PredatorPrey-v0", command=command, parameters={"maxEpisodeSteps": 30})
first, _ = lanes.reset(seed=5)
seen, _ = env.reset(seed=5)
rng = np.random.default_rng(2)
rewarded, steps = 0, 0
while env.agents:
    assert list(seen) == env.possible_agents == [f"player_{i}" for i in range(4)]
    assert (np.stack(list(seen.values())) == first).all()
    assert (env.state() == first.reshape(-1)).all()
    actions = rng.integers(0, 5, 4)
    first, reward, terminated, truncated, _ = lanes.step(actions)
    seen, rewards, terminations, truncations, _ = env.step(dict(zip(env.agents, actions)))
    assert list(rewards.values()) == reward.tolist()
    assert list(terminations.values()) == terminated.tolist() and list(truncations.values()) == truncated.tolist()
    rewarded += int((reward != 0).sum())
    steps += 1
found["together"] = {"rewarded": rewarded, "steps": steps}
everyone = env.possible_agents
for name, wrong in {"missing": {"player_0": 0}, "outside": dict.fromkeys(everyone, 7), "fraction": dict.fromkeys(everyone, 1.7)}.items():
    env.reset()
    try:
        env.step(wrong)
    except ValueError as error:
        found[name] = str(error)

# Whoever begins drops four marks into column 0, the other three into column 1.
env = aec_env("ConnectFour-v0", command=command, parameters={"openingMoves": 0})
begins = set()
for seed in range(8):
    env.reset(seed=seed)
    first = env.agent_selection
    begins.add(first)
    for move in (0, 1, 0, 1, 0, 1):
        seen, reward, terminated, truncated, _ = env.last()
        assert reward == 0 and not terminated and not truncated and seen["action_mask"].tolist() == [1] * 7
        waiting = env.observe(next(agent for agent in env.agents if agent != env.agent_selection))
        assert waiting["action_mask"].tolist() == [1, 0, 0, 0, 0, 0, 0]
        env.step(move)
    assert env.agent_selection == first
    env.step(0)
    assert env.rewards[first] == 1 and sum(env.rewards.values()) == 0 and all(env.terminations.values())
    for _ in range(2):
        env.step(None)
    assert env.agents == []
found["begins"] = sorted(begins)
try:
    env.step(0)
except Exception as error:
    found["over"] = type(error).__name__
env.reset(seed=1)
for _ in range(6):
    env.step(3)
try:
    env.step(3)
except ValueError as error:
    found["illegal"] = str(error)
env.step(2)  # Nothing had changed.
print(json.dumps(found))
