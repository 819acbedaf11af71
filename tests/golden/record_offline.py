#!/usr/bin/env python3
"""Records one update of algorithms for recorded rows, written in torch from their papers, without any of our code.

`offline.json` beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.15.0 numpy
    /tmp/venv/bin/python tests/golden/record_offline.py

Numbers are f64. `weights` and `target` are lists by name, each layer's matrix (inputs × outputs, row-major), then its bias. An algorithm
has the gradient of its loss by each of them (null: it has none), and the loss's parts, means over the minibatch. `noise` is what the
losses draw: standard normal numbers, and uniform ones, in the order of use, each rows × actions. Actions are within ±1.
"""

import json
import math
import platform
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

HERE = Path(__file__).resolve().parent
WIDTH, ACTIONS, ROWS, HIDDEN, GAMMA = 3, 2, 70, [6, 5], 0.9
torch.set_default_dtype(torch.float64)
random = np.random.default_rng(4)
normal = lambda *shape: torch.from_numpy(random.normal(0, 1, shape))

batch = {
    "observation": normal(ROWS, WIDTH),
    "action": torch.from_numpy(random.uniform(-1, 1, (ROWS, ACTIONS))),
    "next": normal(ROWS, WIDTH),
    "terminated": torch.from_numpy((random.uniform(0, 1, ROWS) < 0.3).astype(np.float64)),
    "reward": normal(ROWS),
}  # fmt: skip
s, a, s2, r = batch["observation"], batch["action"], batch["next"], batch["reward"]
s2 = torch.where(batch["terminated"][:, None] > 0, s, s2)  # A replay keeps no observation after a terminal step.
discount = GAMMA * (1 - batch["terminated"])


def network(inputs, outputs):
    sizes = [inputs, *HIDDEN, outputs]
    return [x for i, o in zip(sizes, sizes[1:]) for x in (0.6 * normal(i, o), 0.3 * normal(o))]


def forward(layers, x):
    for i in range(0, len(layers), 2):
        x = x @ layers[i] + layers[i + 1]
        x = F.relu(x) if i + 2 < len(layers) else x
    return x


def critic(layers, states, actions):
    return forward(layers, torch.cat([states, actions], -1)).squeeze(-1)


def copied(weights):
    """Other weights for the target, so that it shows which ones are read."""
    return {name: [x + 0.2 * normal(*x.shape) for x in layers] for name, layers in weights.items()}


def learned(weights):
    return {name: [x.clone().requires_grad_() for x in layers] for name, layers in weights.items()}


def flat(layers):
    return [None if x is None else x.detach().numpy().ravel().tolist() for x in layers]


def record(weights, target, noise, settings, loss):
    w = learned(weights)
    parts = loss(w, target)
    total = sum(parts["losses"].values())
    names = [(name, i) for name, layers in w.items() for i in range(len(layers))]
    gradient = dict(zip(names, torch.autograd.grad(total, [w[n][i] for n, i in names], allow_unused=True)))
    return {
        "settings": settings,
        "weights": {name: flat(layers) for name, layers in weights.items()},
        "target": {name: flat(layers) for name, layers in target.items()},
        "noise": [x.numpy().ravel().tolist() for x in noise],
        "gradient": {name: flat([gradient[name, i] for i in range(len(layers))]) for name, layers in w.items()},
        "parts": {name: float(x.detach()) for name, x in parts["told"].items()},
    }


def td_error(w, y):
    """The absolute error of each critic's values of the recorded actions, means over critics and rows."""
    return sum((critic(w[c], s, a) - y).abs().mean() for c in ("critic0", "critic1")) / 2


def td3bc():
    """The actor steps along the critic that the same update has left, by plain gradient descent."""
    settings = {"learningRate": 0.1, "alpha": 1.7, "targetNoise": 0.4, "targetNoiseClip": 0.3}
    weights = {"actor": network(WIDTH, ACTIONS), "critic0": network(WIDTH + ACTIONS, 1), "critic1": network(WIDTH + ACTIONS, 1)}
    noise = [normal(ROWS, ACTIONS)]

    def loss(w, target):
        with torch.no_grad():
            cut = (settings["targetNoise"] * noise[0]).clamp(-settings["targetNoiseClip"], settings["targetNoiseClip"])
            a2 = (torch.tanh(forward(target["actor"], s2)) + cut).clamp(-1, 1)
            y = r + discount * torch.min(critic(target["critic0"], s2, a2), critic(target["critic1"], s2, a2))
        criticLoss = sum(F.mse_loss(critic(w[c], s, a), y) for c in ("critic0", "critic1"))
        steps = torch.autograd.grad(criticLoss, w["critic0"], retain_graph=True)
        pi = torch.tanh(forward(w["actor"], s))
        q = critic([(x - settings["learningRate"] * step).detach() for x, step in zip(w["critic0"], steps)], s, pi)
        size = q.abs().mean().detach()
        actorLoss = -settings["alpha"] / size * q.mean() + F.mse_loss(pi, a)
        told = {"criticLoss": criticLoss, "actorLoss": actorLoss, "valueSize": size, "tdError": td_error(w, y)}
        return {"losses": {"critic": criticLoss, "actor": actorLoss}, "told": told}

    return record(weights, copied(weights), noise, settings, loss)


def iql():
    settings = {"expectile": 0.8, "beta": 1.5, "weightMax": 2.5}
    weights = {
        "actor": network(WIDTH, ACTIONS), "critic0": network(WIDTH + ACTIONS, 1), "critic1": network(WIDTH + ACTIONS, 1),
        "value": network(WIDTH, 1), "logStd": [torch.tensor([-0.4, 0.3])],
    }  # fmt: skip

    def loss(w, target):
        v = forward(w["value"], s).squeeze(-1)
        with torch.no_grad():
            q = torch.min(critic(target["critic0"], s, a), critic(target["critic1"], s, a))
            y = r + discount * forward(w["value"], s2).squeeze(-1)
            weight = (settings["beta"] * (q - v)).exp().clamp(max=settings["weightMax"])
        assert 0.1 < (weight == settings["weightMax"]).double().mean() < 0.9
        difference = q - v
        slope = torch.where(difference < 0, 1 - settings["expectile"], settings["expectile"])
        valueLoss = (slope * difference**2).mean()
        criticLoss = sum(F.mse_loss(critic(w[c], s, a), y) for c in ("critic0", "critic1"))
        density = torch.distributions.Normal(torch.tanh(forward(w["actor"], s)), w["logStd"][0].exp())
        actorLoss = -(weight * density.log_prob(a).sum(-1)).mean()
        losses = {"criticLoss": criticLoss, "valueLoss": valueLoss, "actorLoss": actorLoss}
        told = {**losses, "advantageWeight": weight.mean(), "stateValue": v.mean(), "actionValue": q.mean(), "tdError": td_error(w, y)}
        return {"losses": losses, "told": told}

    return record(weights, copied(weights), [], settings, loss)


def sampled(layers, states, epsilon):
    mean, logStd = forward(layers, states).chunk(2, -1)
    logStd = logStd.clamp(-20, 2)
    u = mean + logStd.exp() * epsilon
    density = torch.distributions.Normal(mean, logStd.exp()).log_prob(u) - 2 * (math.log(2) - u - F.softplus(-2 * u))
    return torch.tanh(u), density.sum(-1)


def cql():
    settings = {"conservativeWeight": 1.3, "actionSamples": 3, "targetEntropy": -1.5}
    n = settings["actionSamples"]
    weights = {
        "actor": network(WIDTH, 2 * ACTIONS), "critic0": network(WIDTH + ACTIONS, 1), "critic1": network(WIDTH + ACTIONS, 1),
        "logTemperature": [torch.tensor([-0.7])],
    }  # fmt: skip
    uniform = lambda: torch.from_numpy(random.uniform(0, 1, (ROWS, ACTIONS)))
    # The next action, the samples in the state, in the next state and among all actions, and the actor's own one.
    noise = [normal(ROWS, ACTIONS) for _ in range(1 + 2 * n)] + [uniform() for _ in range(n)] + [normal(ROWS, ACTIONS)]

    def loss(w, target):
        temperature = w["logTemperature"][0].exp().detach()
        with torch.no_grad():
            a2, _ = sampled(w["actor"], s2, noise[0])
            y = r + discount * torch.min(critic(target["critic0"], s2, a2), critic(target["critic1"], s2, a2))
            draws = [sampled(w["actor"], s, noise[1 + k]) for k in range(n)]
            draws += [sampled(w["actor"], s2, noise[1 + n + k]) for k in range(n)]
            draws += [(2 * noise[1 + 2 * n + k] - 1, -ACTIONS * math.log(2)) for k in range(n)]
        values = {c: critic(w[c], s, a) for c in ("critic0", "critic1")}
        criticLoss = sum(0.5 * F.mse_loss(x, y) for x in values.values())
        gaps = [torch.logsumexp(torch.stack([critic(w[c], s, x) - p for x, p in draws]), 0) - values[c] for c in values]
        gap = sum(x.mean() for x in gaps)
        fixed = {c: [x.detach() for x in w[c]] for c in values}
        pi, logprob = sampled(w["actor"], s, noise[-1])
        actorLoss = (temperature * logprob - torch.min(critic(fixed["critic0"], s, pi), critic(fixed["critic1"], s, pi))).mean()
        temperatureLoss = -(w["logTemperature"][0] * (logprob + settings["targetEntropy"]).detach()).mean()
        losses = {"critic": criticLoss, "gap": settings["conservativeWeight"] * gap, "actor": actorLoss, "temperature": temperatureLoss}
        told = {"criticLoss": criticLoss, "actorLoss": actorLoss, "conservativeGap": gap / 2, "tdError": td_error(w, y)}
        return {"losses": losses, "told": told}

    return record(weights, copied(weights), noise, settings, loss)


def discrete_cql():
    settings = {"conservativeWeight": 0.7, "huberDelta": 0.5}
    weights = {"values": network(WIDTH, 3)}
    chosen = torch.from_numpy(random.integers(0, 3, ROWS))

    def loss(w, target):
        q = forward(w["values"], s)
        own = q.gather(1, chosen[:, None]).squeeze(-1)
        with torch.no_grad():
            best = forward(w["values"], s2).argmax(-1, keepdim=True)
            y = r + discount * forward(target["values"], s2).gather(1, best).squeeze(-1)
        tdLoss = F.huber_loss(own, y, delta=settings["huberDelta"])
        gap = (torch.logsumexp(q, -1) - own).mean()
        return {"losses": {"td": tdLoss, "gap": settings["conservativeWeight"] * gap}, "told": {"tdLoss": tdLoss, "conservativeGap": gap, "tdError": (own - y).abs().mean()}}

    return {**record(weights, copied(weights), [], settings, loss), "action": chosen.tolist()}


def awr():
    """Of rows whose advantages, returns and log-probabilities are given."""
    settings = {"temperature": 0.6, "weightMax": 2.0, "valueCoef": 0.4, "entropyCoef": 0.02}
    given = {name: normal(ROWS).requires_grad_() for name in ("logprob", "entropy", "value")}
    advantage, returns = normal(ROWS), normal(ROWS)
    normalized = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    weight = (normalized / settings["temperature"]).exp().clamp(max=settings["weightMax"])
    policyLoss = -(weight * given["logprob"]).mean()
    valueLoss = 0.5 * F.mse_loss(given["value"], returns)
    total = policyLoss + settings["valueCoef"] * valueLoss - settings["entropyCoef"] * given["entropy"].mean()
    gradients = torch.autograd.grad(total, list(given.values()))
    lists = lambda x: x.detach().numpy().tolist()
    return {
        "settings": settings, "parts": {"policyLoss": policyLoss.item(), "valueLoss": valueLoss.item()},
        "columns": {**{name: lists(x) for name, x in given.items()}, "advantage": lists(advantage), "return": lists(returns)},
        "gradient": {name: lists(x) for name, x in zip(given, gradients)},
    }  # fmt: skip


text = {
    "command": "python tests/golden/record_offline.py",
    "versions": {"python": platform.python_version(), "torch": torch.__version__.split("+")[0]},
    "hidden": HIDDEN, "gamma": GAMMA, "batch": {name: x.numpy().ravel().tolist() for name, x in batch.items()},
    "td3bc": td3bc(), "iql": iql(), "cql": cql(), "discreteCql": discrete_cql(), "awr": awr(),
}  # fmt: skip
(HERE / "offline.json").write_text(json.dumps(text) + "\n")
