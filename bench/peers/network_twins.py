#!/usr/bin/env python3
"""Twins of the training loops of networks: PPO with a convolutional network on Breakout (MinAtar's dynamics), and with a
recurrent one (a GRU, or an LSTM) on CartPole without velocities; each by JAX, the whole loop jitted, and by torch, as its users write it: eager, with
autograd and its Adam, the environment in tensors too.

Sizes are those of our presets (`SETTINGS`). As in jax_twin.py, and cheaper than our own loop, the time limit counts as an end.

    python bench/peers/network_twins.py --library jax --policy convolutional --threads 1

Reads requests, a line each, and answers each with one JSON line; sleeps in between.
    train N     runs N updates after what ran before; seconds, those of the processor, steps, and mean return of the last episodes of the lanes
JAX compiles at the first request, which is not for timing.
"""

import argparse
import json
import os
import sys
import time
from functools import partial

parser = argparse.ArgumentParser()
parser.add_argument("--library", choices=["jax", "torch"], required=True)
parser.add_argument("--policy", choices=["convolutional", "recurrent", "lstm"], required=True)
parser.add_argument("--threads", type=int, required=True)
arguments = parser.parse_args()
# Before they are imported: they begin their threads then.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-arguments.threads :])

import numpy as np  # noqa: E402

GAE_LAMBDA, VALUE_COEF, MAX_GRAD_NORM, EPOCHS = 0.95, 0.5, 0.5, 3
SETTINGS = {
    "convolutional": dict(lanes=64, steps=32, minibatches=8, rate=6e-3, clip=0.1, gamma=0.98, entropy=0.01, limit=1000),
    "recurrent": dict(lanes=32, steps=128, minibatches=16, rate=4e-3, clip=0.2, gamma=0.98, entropy=0.0, limit=500),
}
IS_LSTM = arguments.policy == "lstm"
IS_RECURRENT = IS_LSTM or arguments.policy == "recurrent"
settings = argparse.Namespace(**SETTINGS["recurrent" if IS_RECURRENT else arguments.policy])
LANES, STEPS = settings.lanes, settings.steps
UNITS, SEQUENCE, ACTIONS = 32, 32, 2 if IS_RECURRENT else 3
# Gates of a cell, and what it remembers: h, and of an LSTM s behind it.
GATES, STATES = (4, 2 * UNITS) if IS_LSTM else (3, UNITS)

if arguments.library == "jax":
    import jax
    import jax.numpy as xp

    version = jax.__version__
    relu, sigmoid, log_softmax = jax.nn.relu, jax.nn.sigmoid, jax.nn.log_softmax
    whole = xp.int32

    def convolve(x, weight, bias):
        """Of rows × height × width × channels, padded to the same size; `weight`: height × width × channels × filters."""
        # By patches: XLA's own convolution is several times as slow on the CPU in a scan.
        side, padded = x.shape[1], xp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        patches = [padded[:, i : i + side, j : j + side] for i in range(3) for j in range(3)]
        return xp.concatenate(patches, -1) @ weight.reshape(-1, weight.shape[-1]) + bias

    def run_cell(cell, h, inputs):
        """`cell(h, *inputs)` for each step of `inputs` (sequences × steps …); what it gave, sequences × steps × units."""
        steps = tuple(xp.swapaxes(x, 0, 1) for x in inputs)
        return xp.swapaxes(jax.lax.scan(lambda h, step: (cell(h, *step),) * 2, h, steps)[1], 0, 1)

    def chosen(logprobs, action):
        return xp.take_along_axis(logprobs, action[:, None], axis=1)[:, 0]

    def as_type(x, kind):
        return x.astype(kind)

else:
    import torch
    import torch as xp

    torch.set_num_threads(arguments.threads)
    version = torch.__version__
    relu, sigmoid, whole = torch.relu, torch.sigmoid, torch.int32

    def log_softmax(x):
        return torch.log_softmax(x, -1)

    def convolve(x, weight, bias):
        y = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), weight.permute(3, 2, 0, 1), bias, padding=1)
        return y.permute(0, 2, 3, 1)

    def run_cell(cell, h, inputs):
        """`cell(h, *inputs)` for each step of `inputs` (sequences × steps …); what it gave, sequences × steps × units."""
        steps = []
        for k in range(inputs[0].shape[1]):
            h = cell(h, *(x[:, k] for x in inputs))
            steps.append(h)
        return torch.stack(steps, 1)

    def chosen(logprobs, action):
        return logprobs.gather(1, action[:, None].long())[:, 0]

    def as_type(x, kind):
        return x.to(kind)


# Environments: `begin(draws)` and `step(state, action, draws)` over lanes, `observe(state)`. `draws`: lanes × 4, uniform in [0, 1).


def cart_pole_begin(draws):
    return tuple(draws.T * 0.1 - 0.05)


def cart_pole_step(state, action, draws):
    x, x_dot, theta, theta_dot = state
    force = xp.where(action == 1, 10.0, -10.0)
    cos, sin = xp.cos(theta), xp.sin(theta)
    temp = (force + 0.05 * theta_dot**2 * sin) / 1.1
    theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    x_acc = temp - 0.05 * theta_acc * cos / 1.1
    state = (x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc)
    terminated = (xp.abs(state[0]) > 2.4) | (xp.abs(state[2]) > 12 * 2 * np.pi / 360)
    return state, xp.ones_like(x), terminated


def cart_pole_observe(state):
    return xp.stack((state[0], state[2]), -1)


SIDE = 10
ROW, COLUMN = xp.arange(SIDE)[None, :, None], xp.arange(SIDE)[None, None, :]
BRICK_ROWS = (ROW >= 1) & (ROW <= 3) & (COLUMN >= 0)


def at(y, x):
    """Where row y and column x of each lane are: lanes × rows × columns."""
    return (ROW == y[:, None, None]) & (COLUMN == x[:, None, None])


def breakout_begin(draws):
    is_left = draws[:, 0] < 0.5
    zero = as_type(is_left, whole) * 0
    x, direction = xp.where(is_left, zero, zero + 9), xp.where(is_left, zero + 2, zero + 3)
    return x, zero + 3, direction, x, zero + 3, zero + 4, BRICK_ROWS | (zero[:, None, None] > 0), is_left & False, zero


def breakout_step(state, action, draws):
    x, y, direction, _, _, paddle, bricks, strike, last_action = state
    action = xp.where(draws[:, 3] < 0.1, last_action, as_type(action, whole))
    paddle = xp.where(action == 1, paddle - 1, xp.where(action == 2, paddle + 1, paddle)).clip(0, SIDE - 1)
    next_x = x + xp.where((direction == 1) | (direction == 2), 1, -1)
    next_y = y + xp.where(direction < 2, -1, 1)
    outside = (next_x < 0) | (next_x >= SIDE)
    next_x, turned = xp.where(outside, x, next_x), xp.where(outside, direction ^ 1, direction)
    top = next_y < 0
    there = at(next_y, next_x)
    met = (bricks & there).any(-1).any(-1) & ~top
    broken = met & ~strike
    bottom = (next_y == SIDE - 1) & ~top & ~met
    bricks = (bricks & ~(there & broken[:, None, None])) | (BRICK_ROWS & (bottom & ~bricks.any(-1).any(-1))[:, None, None])
    straight = bottom & (x == paddle)
    aside = bottom & ~straight & (next_x == paddle)
    turned = xp.where(top | broken | straight, turned ^ 3, xp.where(aside, turned ^ 2, turned))
    next_y = xp.where(top, next_y * 0, xp.where(broken | straight | aside, y, next_y))
    state = (next_x, next_y, turned, x, y, paddle, bricks, met, action)
    return state, as_type(broken, xp.float32), bottom & ~straight & ~aside


def breakout_observe(state):
    x, y, _, trail_x, trail_y, paddle, bricks, _, _ = state
    channels = (at(y * 0 + SIDE - 1, paddle), at(y, x), at(trail_y, trail_x), bricks)
    return as_type(xp.stack(channels, -1), xp.float32)


begin, step_env, observe = (
    (cart_pole_begin, cart_pole_step, cart_pole_observe)
    if IS_RECURRENT
    else (breakout_begin, breakout_step, breakout_observe)
)


def step_lanes(env, action, draws, fresh_draws):
    """A lane that ended begins anew in the same step. Of `env`: state, steps of the episode, its return, and the last one's."""
    state, steps, total, last_return = env
    state, reward, terminated = step_env(state, action, draws)
    steps, total = steps + 1, total + reward
    done = terminated | (steps >= settings.limit)
    fresh = begin(fresh_draws)
    keep = [xp.where(done[:, None, None] if s.ndim == 3 else done, f, s) for f, s in zip(fresh, state)]
    env = (tuple(keep), xp.where(done, 0, steps), xp.where(done, 0.0, total), xp.where(done, total, last_return))
    return env, reward, as_type(done, xp.float32)


# Networks: `weights` by name, as our own have them.


def start_weights():
    """Orthogonal, with gains as ours; biases 0."""
    random = np.random.default_rng(1)

    def matrix(shape, gain):
        rows, columns = int(np.prod(shape[:-1])), shape[-1]
        q, _ = np.linalg.qr(random.normal(size=(max(rows, columns), min(rows, columns))))
        return (gain * (q if rows >= columns else q.T)).reshape(shape).astype(np.float32)

    def layer(name, shape, gain):
        return {f"{name}.weight": matrix(shape, gain), f"{name}.bias": np.zeros(shape[-1], np.float32)}

    root = 2**0.5
    if not IS_RECURRENT:
        trunk = {**layer("convolution", (3, 3, 4, 16), root), **layer("hidden", (1600, 64), root)}
        return {**trunk, **layer("actor", (64, ACTIONS), 0.01), **layer("critic", (64, 1), 1.0)}
    weights = {}
    for name, outputs, gain in (("actor", ACTIONS, 0.01), ("critic", 1, 1.0)):
        weights |= layer(f"{name}.0", (2, UNITS), root) | layer(f"{name}.1", (UNITS, UNITS), root)
        weights |= layer(f"{name}.input", (UNITS, GATES * UNITS), 1.0) | layer(f"{name}.hidden", (UNITS, GATES * UNITS), 1.0)
        weights |= layer(f"{name}.head", (UNITS, outputs), gain)
    return weights


def dense(weights, name, x):
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gru(weights, name, gates, h):
    """One step of a gated recurrent unit, from what the input gives its gates."""
    own = dense(weights, f"{name}.hidden", h)
    reset = sigmoid(gates[:, :UNITS] + own[:, :UNITS])
    update = sigmoid(gates[:, UNITS : 2 * UNITS] + own[:, UNITS : 2 * UNITS])
    proposed = xp.tanh(gates[:, 2 * UNITS :] + reset * own[:, 2 * UNITS :])
    return (1 - update) * proposed + update * h


def lstm(weights, name, gates, state):
    """One step of a long short-term memory, in the order i, f, g, o."""
    every = gates + dense(weights, f"{name}.hidden", state[:, :UNITS])
    i, f, g, o = (every[:, k * UNITS : (k + 1) * UNITS] for k in range(4))
    cell = sigmoid(f) * state[:, UNITS:] + sigmoid(i) * xp.tanh(g)
    return xp.concatenate((sigmoid(o) * xp.tanh(cell), cell), -1)


step_cell = lstm if IS_LSTM else gru


def trunk_gates(weights, name, x):
    for layer in (0, 1):
        x = relu(dense(weights, f"{name}.{layer}", x))
    return dense(weights, f"{name}.input", x)


def act(weights, observation, memory):
    """Log-probabilities and values of lanes, and what they remember then: the actor's and the critic's."""
    if not IS_RECURRENT:
        x = relu(convolve(observation, weights["convolution.weight"], weights["convolution.bias"]))
        x = relu(dense(weights, "hidden", x.reshape(x.shape[0], -1)))
        return log_softmax(dense(weights, "actor", x)), dense(weights, "critic", x)[:, 0], memory
    actor, critic = (step_cell(weights, n, trunk_gates(weights, n, observation), m) for n, m in zip(("actor", "critic"), memory))
    logprobs = log_softmax(dense(weights, "actor.head", actor[:, :UNITS]))
    return logprobs, dense(weights, "critic.head", critic[:, :UNITS])[:, 0], (actor, critic)


def evaluate(weights, rows):
    """The same of a minibatch of rows, or of sequences of rows (sequences × rows), flat."""
    if not IS_RECURRENT:
        return act(weights, rows["observation"], ())[:2]
    observation, goes_on = rows["observation"], rows["goes_on"]
    count, length = observation.shape[:2]
    outputs = []
    for name, memory in (("actor", rows["actor"]), ("critic", rows["critic"])):
        gates = trunk_gates(weights, name, observation.reshape(count * length, -1)).reshape(count, length, -1)
        cell = partial(lambda name, h, gates, going: step_cell(weights, name, gates, h * going[:, None]), name)
        states = run_cell(cell, memory, (gates, goes_on))
        outputs.append(dense(weights, f"{name}.head", states.reshape(count * length, STATES)[:, :UNITS]))
    return log_softmax(outputs[0]), outputs[1][:, 0]


def loss_of(weights, rows):
    logprobs, value = evaluate(weights, rows)
    action, old_logprob, advantage, target = (
        rows[name].reshape(-1) for name in ("action", "logprob", "advantage", "target")
    )
    ratio = xp.exp(chosen(logprobs, action) - old_logprob)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = -xp.minimum(ratio * advantage, ratio.clip(1 - settings.clip, 1 + settings.clip) * advantage).mean()
    entropy = -(xp.exp(logprobs) * logprobs).sum(-1).mean()
    return policy_loss + VALUE_COEF * 0.5 * ((value - target) ** 2).mean() - settings.entropy * entropy


def units_of(rows):
    """What minibatches are drawn of, first: rows, or sequences of them. `rows`: steps × lanes."""
    if not IS_RECURRENT:
        return {name: x.reshape((STEPS * LANES,) + x.shape[2:]) for name, x in rows.items() if name not in ("actor", "critic")}
    cut = {name: x.reshape((STEPS // SEQUENCE, SEQUENCE) + x.shape[1:]) for name, x in rows.items()}
    units = {name: xp.swapaxes(x, 1, 2) for name, x in cut.items()}
    units = {name: x.reshape((-1,) + x.shape[2:]) for name, x in units.items()}
    return {name: x[:, 0] if name in ("actor", "critic") else x for name, x in units.items()}


COUNT = STEPS * LANES // (SEQUENCE if IS_RECURRENT else 1)
MEMORY = 2 if IS_RECURRENT else 0


def by_jax():
    def one_update(carry, _):
        weights, moments, env, memory, goes_on, key = carry

        def tick(carry, _):
            env, memory, goes_on, key = carry
            key, choose, draw, fresh = jax.random.split(key, 4)
            memory = tuple(m * goes_on[:, None] for m in memory)
            observation = observe(env[0])
            logprobs, value, after = act(weights, observation, memory)
            action = jax.random.categorical(choose, logprobs)
            draws = (jax.random.uniform(k, (LANES, 4)) for k in (draw, fresh))
            env, reward, done = step_lanes(env, action, *draws)
            rows = dict(observation=observation, action=action, logprob=chosen(logprobs, action), value=value)
            rows |= dict(reward=reward, done=done, goes_on=goes_on, **dict(zip(("actor", "critic"), memory)))
            return (env, after, 1 - done, key), rows

        (env, memory, goes_on, key), rows = jax.lax.scan(tick, (env, memory, goes_on, key), None, STEPS)
        last_value = act(weights, observe(env[0]), tuple(m * goes_on[:, None] for m in memory))[1]

        def back(carry, row):
            advantage, next_value = carry
            going = 1 - row["done"]
            delta = row["reward"] + settings.gamma * next_value * going - row["value"]
            advantage = delta + settings.gamma * GAE_LAMBDA * going * advantage
            return (advantage, row["value"]), advantage

        some = {name: rows[name] for name in ("reward", "value", "done")}
        advantage = jax.lax.scan(back, (xp.zeros(LANES), last_value), some, reverse=True)[1]
        units = units_of(rows | dict(advantage=advantage, target=advantage + rows["value"]))

        def minibatch(carry, rows):
            weights, (count, first, second) = carry
            gradient = jax.grad(loss_of)(weights, rows)
            norm = xp.sqrt(sum(xp.sum(g * g) for g in gradient.values()))
            gradient = {n: g * xp.minimum(1.0, MAX_GRAD_NORM / (norm + 1e-6)) for n, g in gradient.items()}
            count = count + 1
            first = {n: 0.9 * first[n] + 0.1 * g for n, g in gradient.items()}
            second = {n: 0.999 * second[n] + 0.001 * g * g for n, g in gradient.items()}
            unbias1, unbias2 = 1 / (1 - 0.9**count), 1 / (1 - 0.999**count)
            step = {n: settings.rate * first[n] * unbias1 / (xp.sqrt(second[n] * unbias2) + 1e-5) for n in gradient}
            return ({n: w - step[n] for n, w in weights.items()}, (count, first, second)), None

        def epoch(carry, _):
            weights, moments, key = carry
            key, shuffle = jax.random.split(key)
            order = jax.random.permutation(shuffle, COUNT)
            batches = {n: x[order].reshape((settings.minibatches, -1) + x.shape[1:]) for n, x in units.items()}
            (weights, moments), _ = jax.lax.scan(minibatch, (weights, moments), batches)
            return (weights, moments, key), None

        (weights, moments, key), _ = jax.lax.scan(epoch, (weights, moments, key), None, EPOCHS)
        return (weights, moments, env, memory, goes_on, key), None

    @partial(jax.jit, static_argnums=1)
    def train(carry, updates):
        return jax.lax.scan(one_update, carry, None, updates)[0]

    weights = {name: xp.asarray(value) for name, value in start_weights().items()}
    zeros = {name: xp.zeros_like(value) for name, value in weights.items()}
    key, draw = jax.random.split(jax.random.key(1))
    env = (begin(jax.random.uniform(draw, (LANES, 4))), xp.zeros(LANES, xp.int32), xp.zeros(LANES), xp.zeros(LANES))
    memory = tuple(xp.zeros((LANES, STATES)) for _ in range(MEMORY))
    carry = (weights, (xp.int32(0), zeros, zeros), env, memory, xp.ones(LANES), key)

    def run(updates):
        nonlocal carry
        carry = jax.block_until_ready(train(carry, updates))
        return float(carry[2][3].mean())

    return run


def by_torch():
    torch.manual_seed(1)
    weights = {name: torch.from_numpy(value).requires_grad_() for name, value in start_weights().items()}
    adam = torch.optim.Adam(list(weights.values()), lr=settings.rate, eps=1e-5, fused=True)
    env = (begin(torch.rand(LANES, 4)), torch.zeros(LANES, dtype=torch.int32), torch.zeros(LANES), torch.zeros(LANES))
    memory = tuple(torch.zeros(LANES, STATES) for _ in range(MEMORY))
    goes_on = torch.ones(LANES)

    @torch.no_grad()
    def collect():
        nonlocal env, memory, goes_on
        ticks = []
        for _ in range(STEPS):
            memory = tuple(m * goes_on[:, None] for m in memory)
            observation = observe(env[0])
            logprobs, value, after = act(weights, observation, memory)
            action = torch.multinomial(logprobs.exp(), 1)[:, 0]
            env, reward, done = step_lanes(env, action, torch.rand(LANES, 4), torch.rand(LANES, 4))
            row = dict(observation=observation, action=action, logprob=chosen(logprobs, action), value=value)
            ticks.append(row | dict(reward=reward, done=done, goes_on=goes_on, **dict(zip(("actor", "critic"), memory))))
            memory, goes_on = after, 1 - done
        rows = {name: torch.stack([tick[name] for tick in ticks]) for name in ticks[0]}
        next_value = act(weights, observe(env[0]), tuple(m * goes_on[:, None] for m in memory))[1]
        advantage, advantages = torch.zeros(LANES), torch.empty(STEPS, LANES)
        for t in reversed(range(STEPS)):
            going = 1 - rows["done"][t]
            delta = rows["reward"][t] + settings.gamma * next_value * going - rows["value"][t]
            advantage = delta + settings.gamma * GAE_LAMBDA * going * advantage
            advantages[t], next_value = advantage, rows["value"][t]
        return units_of(rows | dict(advantage=advantages, target=advantages + rows["value"]))

    def run(updates):
        for _ in range(updates):
            units = collect()
            for _ in range(EPOCHS):
                for part in torch.randperm(COUNT).chunk(settings.minibatches):
                    adam.zero_grad()
                    loss_of(weights, {name: x[part] for name, x in units.items()}).backward()
                    torch.nn.utils.clip_grad_norm_(weights.values(), MAX_GRAD_NORM)
                    adam.step()
        return float(env[3].mean())

    return run


def main():
    run = by_jax() if arguments.library == "jax" else by_torch()
    for line in sys.stdin:
        updates = int(line.split()[1])
        start, cpu_start = time.perf_counter(), time.process_time()
        mean_return = run(updates)
        answer = {"seconds": time.perf_counter() - start, "cpuSeconds": time.process_time() - cpu_start}
        answer |= {"steps": updates * STEPS * LANES, "meanReturn": mean_return}
        print(json.dumps(answer | {"version": version}), flush=True)


if __name__ == "__main__":
    main()
