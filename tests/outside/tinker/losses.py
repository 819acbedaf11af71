"""
Tinker's SDK against a service of ours, and torch beside it: every named loss and one of its own, each with an optimizer step, on an
adapter that both begin with. Prints the largest differences as JSON.

    python losses.py URL MODEL_FOLDER STATE_FOLDER
"""

import json
import sys

import numpy as np
import tinker
import torch
from safetensors.torch import load_file
from tinker import types
from transformers import AutoModelForCausalLM

url, folder, state = sys.argv[1:4]
RANK, ALPHA = 4, 32
service = tinker.ServiceClient(base_url=url, api_key="tml-local")
client = service.create_lora_training_client(base_model=folder, rank=RANK, seed=5).result()
saved = client.save_state("begin").result()


def adapter_of(path):
    model, kind, name = path.removeprefix("tinker://").split("/")
    return load_file(f"{state}/{model.replace(':', '_')}/{kind}/{name}/adapter_model.safetensors")


model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
model.requires_grad_(False)
trained = {}
for name, values in adapter_of(saved.path).items():
    trained[name.removeprefix("base_model.model.")] = values.clone().requires_grad_(True)
for name in [n.removesuffix(".lora_A.weight") for n in trained if n.endswith("lora_A.weight")]:
    a, b = trained[f"{name}.lora_A.weight"], trained[f"{name}.lora_B.weight"]

    def add(module, given, out, a=a, b=b):
        return out + (given[0] @ a.T @ b.T) * (ALPHA / RANK)

    model.get_submodule(name).register_forward_hook(add)
optimizer = torch.optim.AdamW(trained.values(), lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)

random = np.random.default_rng(7)
sequences = [random.integers(0, 400, size=n + 1).tolist() for n in (5, 17, 30, 8)]


def torch_logprobs(tokens):
    logits = model(torch.tensor([tokens[:-1]])).logits[0]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]


def clipped(ratio, advantage, low, high):
    return -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)


def loss_of(name, logprob, given, config):
    tensor = {key: torch.tensor(values) for key, values in given.items()}
    if name == "cross_entropy":
        return -(logprob * tensor["weights"])
    old, advantage = tensor["logprobs"], tensor["advantages"]
    ratio = (logprob - old).exp()
    low, high = config.get("clip_low_threshold", 0.8), config.get("clip_high_threshold", 1.2)
    if name == "importance_sampling":
        return -(ratio * advantage)
    if name == "ppo":
        return clipped(ratio, advantage, low, high)
    if name == "cispo":
        return -(ratio.clamp(low, high).detach() * logprob * advantage)
    if name == "dro":
        return -(logprob * advantage - 0.5 * config["beta"] * (logprob - old) ** 2) * (advantage != 0)
    mask = tensor["sequence_ratio_mask"]
    mean = ((logprob - old) * mask).sum() / mask.sum()
    return clipped((logprob - logprob.detach() + mean.detach()).exp(), advantage, low, high) * mask


LOSSES = [
    ("cross_entropy", {}),
    ("importance_sampling", {}),
    ("ppo", {}),
    ("ppo", {"clip_low_threshold": 0.95, "clip_high_threshold": 1.05}),
    ("cispo", {}),
    ("dro", {"beta": 0.05}),
    ("gspo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}),
]
worst = {"logprob": 0.0, "loss": 0.0, "gradient norm": 0.0}


def note(key, own, other):
    worst[key] = max(worst[key], abs(own - other) / max(1, abs(other)))


def step(outputs, metrics, stepped, logprobs, loss):
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(trained.values(), 5.0).item()
    optimizer.step()
    optimizer.zero_grad()
    for output, logprob in zip(outputs, logprobs, strict=True):
        for own, other in zip(output["logprobs"].tolist(), logprob.tolist(), strict=True):
            note("logprob", own, other)
    note("loss", metrics["loss:sum"], loss.item())
    note("gradient norm", stepped["grad_norm"], norm)


ADAM = types.AdamParams(learning_rate=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip_norm=5.0)
for name, config in LOSSES:
    logprobs = [torch_logprobs(tokens) for tokens in sequences]
    data, losses = [], []
    for tokens, logprob in zip(sequences, logprobs, strict=True):
        n = len(tokens) - 1
        if name == "cross_entropy":
            given = {"weights": random.uniform(0, 1, n).astype(np.float32).tolist()}
        else:
            old = logprob.detach().numpy() + random.normal(0, 0.2, n)
            advantage = random.normal(0, 1, n) * (random.uniform(size=n) > 0.2)
            given = {"logprobs": old.astype(np.float32).tolist(), "advantages": advantage.astype(np.float32).tolist()}
        if name == "gspo":
            given["sequence_ratio_mask"] = [0.0, 0.0] + [1.0] * (n - 2)
        losses.append(loss_of(name, logprob, given, config).sum())
        inputs = {key: types.TensorData(data=values, dtype="float32", shape=[n]) for key, values in given.items()}
        inputs["target_tokens"] = types.TensorData(data=tokens[1:], dtype="int64", shape=[n])
        data.append(types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs))
    # In two passes, whose gradients add up.
    passes = [client.forward_backward(part, name, config) for part in (data[:1], data[1:])]
    stepped = client.optim_step(ADAM).result().metrics
    results = [each.result() for each in passes]
    metrics = {"loss:sum": sum(each.metrics["loss:sum"] for each in results)}
    step([out for each in results for out in each.loss_fn_outputs], metrics, stepped, logprobs, sum(losses))


def custom(_, logprobs):
    return sum((each.exp() - 0.5).square().sum() for each in logprobs), {}


logprobs = [torch_logprobs(tokens) for tokens in sequences]
done = client.forward_backward_custom(data, custom)
stepped = client.optim_step(ADAM).result().metrics
step(done.result().loss_fn_outputs, done.result().metrics, stepped, logprobs, custom(None, logprobs)[0])

# Several targets per token, as distillation has: dense, sparse (the SDK's choice for tensors that are mostly zeros), and in a loss of
# its own. The last datum has another number of targets.
for is_sparse, own_loss in ((False, False), (True, False), (False, True)):
    data, losses, logprobs = [], [], []
    for tokens, count in zip(sequences, (3, 3, 3, 5), strict=True):
        n = len(tokens) - 1
        targets = torch.tensor(random.integers(1, 400, size=(n, count)))
        weights = torch.tensor(random.uniform(0, 1, size=(n, count)).astype(np.float32))
        if is_sparse:
            targets[1:], weights[1:] = 0, 0
        inputs = {"target_tokens": targets, "weights": weights}
        if not is_sparse:
            inputs = {key: types.TensorData.from_torch(each) for key, each in inputs.items()}
        data.append(types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs))
        assert (data[-1].loss_fn_inputs["weights"].sparse_crow_indices is not None) == is_sparse
        logprobs.append(torch.log_softmax(model(torch.tensor([tokens[:-1]])).logits[0], -1).gather(1, targets))
        losses.append(-(weights * logprobs[-1]).sum())
    loss = custom(None, logprobs)[0] if own_loss else sum(losses)
    done = client.forward_backward_custom(data, custom) if own_loss else client.forward_backward(data, "cross_entropy")
    stepped = client.optim_step(ADAM).result().metrics
    outputs = done.result().loss_fn_outputs
    assert [out["logprobs"].shape[1] for out in outputs] == [3, 3, 3, 5]
    flat = [each.flatten() for each in logprobs]
    step([{"logprobs": out["logprobs"].to_torch().flatten()} for out in outputs], done.result().metrics, stepped, flat, loss)

ended = adapter_of(client.save_state("end").result().path)
worst["weights"] = max(
    (ended[f"base_model.model.{name}"] - values.detach()).abs().max().item() for name, values in trained.items()
)
# Sampled log-probabilities are those of torch, at temperature 1 over all tokens, however the tokens were drawn.
sampler = client.save_weights_and_get_sampling_client().result()
for drawn in ({}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 0.0}):
    parameters = types.SamplingParams(max_tokens=12, seed=3, stop=[], **drawn)
    prompt = types.ModelInput.from_ints(sequences[0])
    answer = sampler.sample(prompt, 3, parameters, include_prompt_logprobs=True, topk_prompt_logprobs=2).result()
    tops = answer.topk_prompt_logprobs
    assert tops[0] is None and len(tops) == len(sequences[0]), tops
    for top, token, logprob in list(zip(tops, sequences[0], answer.prompt_logprobs))[1:]:
        assert len(top) == 2 and top[0][1] >= max(top[1][1], logprob - 1e-6), (top, logprob)
        worst["sampled"] = max(worst.get("sampled", 0.0), abs(dict(top).get(token, logprob) - logprob))
    for sequence in answer.sequences:
        expected = torch_logprobs(sequences[0] + list(sequence.tokens)).tolist()
        told = answer.prompt_logprobs[1:] + list(sequence.logprobs)
        for own, other in zip(told, expected, strict=True):
            worst["sampled"] = max(worst.get("sampled", 0.0), abs(own - other))
print(json.dumps(worst))
