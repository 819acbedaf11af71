#!/usr/bin/env python3
"""A JAX twin of the training loop: PPO on CartPole-v1, the whole loop jitted, in the manner of PureJaxRL.

CartPole with automatic reset, rollout (scan), generalized advantage estimation (scan), 4 epochs of minibatches, two
separate tanh networks of two hidden layers each, Adam with clipping of the global norm. Sizes and the learning rate are
arguments. As in PureJaxRL, and cheaper than our own loop: the time limit counts as an end (no bootstrap), and nothing is kept of a
rollout but what the loss needs.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install jax==0.10.2
    printf 'compile 10\ntrain 10\n' | /tmp/venv/bin/python bench/peers/jax_twin.py --envs 256 --steps 32 --hidden 64

`--cores 1` keeps it on one core, where it is often faster than on two. Reads requests, a line each, and answers each with one JSON line; sleeps in between.
    compile N   compiles a loop of N updates; seconds of it
    train N     runs it, after what ran before; seconds, steps, and mean return of the last episodes of the lanes
"""

import argparse
import json
import os
import sys
import time
from functools import partial
from typing import NamedTuple

parser = argparse.ArgumentParser()
parser.add_argument("--envs", type=int, default=256)
parser.add_argument("--steps", type=int, default=32)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--minibatches", type=int, default=8)
parser.add_argument("--learning-rate", type=float, default=2e-3)
parser.add_argument("--cores", type=int, default=0, help="0: all")
arguments = parser.parse_args()
if arguments.cores > 0:  # Before JAX is imported: it begins its threads then.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-arguments.cores :])

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

ENVS, STEPS, HIDDEN, MINIBATCHES = arguments.envs, arguments.steps, arguments.hidden, arguments.minibatches
EPOCHS, LEARNING_RATE = 4, arguments.learning_rate
GAMMA, GAE_LAMBDA, CLIP, VALUE_COEF, MAX_GRAD_NORM = 0.99, 0.95, 0.2, 0.5, 0.5
MAX_EPISODE_STEPS = 500


class Env(NamedTuple):
    state: jax.Array  # 4 a lane: position, velocity, angle, angular velocity
    steps: jax.Array
    last_return: jax.Array  # of the lane's last finished episode


class Adam(NamedTuple):
    count: jax.Array
    moment: dict
    square: dict


class Rows(NamedTuple):
    observation: jax.Array
    action: jax.Array
    logprob: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


def reset_states(key, count):
    return jax.random.uniform(key, (count, 4), minval=-0.05, maxval=0.05)


def step_env(env, action, key):
    """Gymnasium's CartPole-v1; a lane that ended begins anew in the same step."""
    x, x_dot, theta, theta_dot = env.state.T
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    temp = (force + 0.05 * theta_dot**2 * sin) / 1.1
    theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    x_acc = temp - 0.05 * theta_acc * cos / 1.1
    state = jnp.stack(
        [x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc], axis=1
    )
    steps = env.steps + 1
    terminated = (jnp.abs(state[:, 0]) > 2.4) | (jnp.abs(state[:, 2]) > 12 * 2 * jnp.pi / 360)
    done = terminated | (steps >= MAX_EPISODE_STEPS)
    fresh = reset_states(key, ENVS)
    return (
        Env(
            jnp.where(done[:, None], fresh, state),
            jnp.where(done, 0, steps),
            jnp.where(done, steps.astype(jnp.float32), env.last_return),
        ),
        jnp.ones(ENVS),
        done,
    )


def init_network(key):
    def layer(key, inputs, outputs, gain):
        weight = jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs))
        return {"w": weight, "b": jnp.zeros(outputs)}

    keys = jax.random.split(key, 6)
    root = 2**0.5
    return {
        "actor": [layer(keys[0], 4, HIDDEN, root), layer(keys[1], HIDDEN, HIDDEN, root), layer(keys[2], HIDDEN, 2, 0.01)],
        "critic": [layer(keys[3], 4, HIDDEN, root), layer(keys[4], HIDDEN, HIDDEN, root), layer(keys[5], HIDDEN, 1, 1.0)],
    }


def mlp(layers, x):
    for layer in layers[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def network(weights, observation):
    return jax.nn.log_softmax(mlp(weights["actor"], observation)), mlp(weights["critic"], observation)[..., 0]


def loss_of(weights, rows, advantage, target):
    logprobs, value = network(weights, rows.observation)
    logprob = jnp.take_along_axis(logprobs, rows.action[:, None], axis=1)[:, 0]
    ratio = jnp.exp(logprob - rows.logprob)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
    return policy_loss + VALUE_COEF * 0.5 * jnp.square(value - target).mean()


def descend(weights, adam, gradient):
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradient)))
    gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, MAX_GRAD_NORM / (norm + 1e-6)), gradient)
    count = adam.count + 1
    moment = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, adam.moment, gradient)
    square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, adam.square, gradient)
    unbias1, unbias2 = 1 / (1 - 0.9**count), 1 / (1 - 0.999**count)
    weights = jax.tree.map(
        lambda w, m, v: w - LEARNING_RATE * m * unbias1 / (jnp.sqrt(v * unbias2) + 1e-5), weights, moment, square
    )
    return weights, Adam(count, moment, square)


def one_update(carry, _):
    weights, adam, env, key = carry

    def tick(carry, _):
        env, key = carry
        key, choose, begin = jax.random.split(key, 3)
        logprobs, value = network(weights, env.state)
        action = jax.random.categorical(choose, logprobs)
        logprob = jnp.take_along_axis(logprobs, action[:, None], axis=1)[:, 0]
        after, reward, done = step_env(env, action, begin)
        return (after, key), Rows(env.state, action, logprob, value, reward, done)

    (env, key), rows = jax.lax.scan(tick, (env, key), None, STEPS)

    def back(carry, row):
        advantage, next_value = carry
        goes_on = 1.0 - row.done
        delta = row.reward + GAMMA * next_value * goes_on - row.value
        advantage = delta + GAMMA * GAE_LAMBDA * goes_on * advantage
        return (advantage, row.value), advantage

    last_value = network(weights, env.state)[1]
    _, advantages = jax.lax.scan(back, (jnp.zeros(ENVS), last_value), rows, reverse=True, unroll=16)
    flat = jax.tree.map(lambda x: x.reshape((ENVS * STEPS,) + x.shape[2:]), (rows, advantages, advantages + rows.value))

    def epoch(carry, _):
        weights, adam, key = carry
        key, shuffle = jax.random.split(key)
        order = jax.random.permutation(shuffle, ENVS * STEPS)
        minibatches = jax.tree.map(
            lambda x: jnp.take(x, order, axis=0).reshape((MINIBATCHES, -1) + x.shape[1:]), flat
        )

        def minibatch(carry, batch):
            weights, adam = carry
            return descend(weights, adam, jax.grad(loss_of)(weights, *batch)), None

        (weights, adam), _ = jax.lax.scan(minibatch, (weights, adam), minibatches)
        return (weights, adam, key), None

    (weights, adam, key), _ = jax.lax.scan(epoch, (weights, adam, key), None, EPOCHS)
    return (weights, adam, env, key), None


@partial(jax.jit, static_argnums=1)
def train_jitted(carry, updates):
    return jax.lax.scan(one_update, carry, None, updates)[0]


def start(seed):
    key, network_key, env_key = jax.random.split(jax.random.key(seed), 3)
    weights = init_network(network_key)
    zeros = jax.tree.map(jnp.zeros_like, weights)
    env = Env(reset_states(env_key, ENVS), jnp.zeros(ENVS, jnp.int32), jnp.zeros(ENVS))
    return weights, Adam(jnp.int32(0), zeros, zeros), env, key


def main():
    carry = start(1)
    compiled = {}
    for line in sys.stdin:
        word, updates = line.split()
        updates = int(updates)
        begin = time.perf_counter()
        if word == "compile":
            compiled[updates] = train_jitted.lower(carry, updates).compile()
        else:
            carry = jax.block_until_ready(compiled[updates](carry))
        answer = {
            "seconds": time.perf_counter() - begin,
            "steps": updates * ENVS * STEPS,
            "meanReturn": float(carry[2].last_return.mean()),
            "version": jax.__version__,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
