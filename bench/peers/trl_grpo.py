#!/usr/bin/env python3
"""Times TRL's GRPOTrainer on the CPU, as a peer to compare with: generation, and the training step on what was generated.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install trl==1.16.0 torch==2.15.0 transformers==5.23.0
    echo run | /tmp/venv/bin/python bench/peers/trl_grpo.py FOLDER TASK.json 2

FOLDER is a model as `save_pretrained` writes it. The JSON has `prompts` (lists of token ids) and `answers`, one a group,
`texts` of the tokens, `groupSize`, `maxTokens`, `learningRate`, `endId`, `padId`. The last word is the number of torch's threads. A line "run" asks
for one generation and one optimizer step, and is answered with their seconds and what they came to, in one line of JSON;
"about" with the version and the number of parameters.

Generation is the trainer's own `_generate_single_turn` (padded, with a cache of keys and values); the step is the
trainer's `_compute_loss`, its gradient clipped, and AdamW. Rewards, advantages, logging and data loading are left out.
"""

import json
import os
import sys
import tempfile
import time

folder, path, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.environ["OMP_NUM_THREADS"] = str(threads)

import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

torch.set_num_threads(threads)
torch.manual_seed(1)
with open(path) as file:
    task = json.load(file)
prompts = [prompt for prompt in task["prompts"] for _ in range(task["groupSize"])]
answers = [answer for answer in task["answers"] for _ in range(task["groupSize"])]
words = {f"<{i}>": i for i in range(max(task["endId"], task["padId"]) + 1)}
ending, padding = f"<{task['endId']}>", f"<{task['padId']}>"
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel(words, unk_token=padding)), eos_token=ending, pad_token=padding
)
trainer = GRPOTrainer(
    model=LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32),
    args=GRPOConfig(
        output_dir=tempfile.mkdtemp(), report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False,
        per_device_train_batch_size=len(prompts), num_generations=task["groupSize"], temperature=1.0,
        max_completion_length=task["maxTokens"], loss_type="grpo", beta=0.0, learning_rate=task["learningRate"],
    ),
    processing_class=tokenizer,
    reward_funcs=lambda completions, **_: [0.0] * len(completions),
    train_dataset=Dataset.from_list([{"prompt": "a"}] * len(prompts)),
)
trainer.create_optimizer()
trainer.current_gradient_accumulation_steps = 1
model = trainer.model
model.train()


def reward_of(completion, answer):
    """As text/reverse has it: half for the whole answer, half for each character that is right."""
    said = "".join(task["texts"][i] for i in completion if i != task["endId"])
    right = sum(a == b for a, b in zip(said, answer)) / max(len(said), len(answer))
    return 0.5 * (said == answer) + 0.5 * right


def generate():
    completions, _ = trainer._generate_single_turn(prompts, None, {}, task["groupSize"])
    return completions


def batch_of(completions):
    def padded(rows, left):
        width = max(map(len, rows))
        ids = [[task["padId"]] * (width - len(r)) + r if left else r + [task["padId"]] * (width - len(r)) for r in rows]
        mask = [[0] * (width - len(r)) + [1] * len(r) if left else [1] * len(r) + [0] * (width - len(r)) for r in rows]
        return torch.tensor(ids), torch.tensor(mask)

    prompt_ids, prompt_mask = padded(prompts, True)
    completion_ids, completion_mask = padded(completions, False)
    rewards = torch.tensor([reward_of(c, a) for c, a in zip(completions, answers)])
    groups = rewards.view(-1, task["groupSize"])
    advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "advantages": advantages,
        "num_items_in_batch": completion_mask.sum(),
    }, rewards.mean().item()


def train(batch):
    loss = trainer._compute_loss(model, batch)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
    return loss.item(), norm.item()


for line in sys.stdin:
    if line.strip() == "about":
        parameters = sum(parameter.numel() for parameter in model.parameters())
        print(json.dumps({"version": trl.__version__, "parameters": parameters}), flush=True)
        continue
    started = time.perf_counter()
    completions = generate()
    generated = time.perf_counter()
    batch, reward = batch_of(completions)
    prepared = time.perf_counter()
    loss, norm = train(batch)
    answer = {
        "rolloutSeconds": generated - started,
        "updateSeconds": time.perf_counter() - prepared,
        "sampled": sum(map(len, completions)),
        "trained": sum(map(len, completions)) + sum(map(len, prompts)),
        "loss": loss,
        "gradNorm": norm,
        "reward": reward,
    }
    print(json.dumps(answer), flush=True)
