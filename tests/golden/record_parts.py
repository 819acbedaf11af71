#!/usr/bin/env python3
"""Records what TRL, PEFT and transformers make of distillation, DoRA adapters and the routers' load balancing.

The folder `parts/` beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install trl==1.16.0 peft==0.21.2 torch==2.15.0 transformers==5.23.0
    /tmp/venv/bin/python tests/golden/record_parts.py

* `parts/student` and `parts/teacher` are models with the same tokens, more than are in memory at once. `distillation.safetensors`: the
  sequences in ``tokens`` with ``lengths``, and a ``mask`` of learned tokens; ``loss`` is GKDTrainer's with beta=0, the mean over learned
  tokens of the forward KL divergence to the teacher, and ``gradient.NAME`` its gradient by the student's parameter NAME.
* `parts/dora` is an adapter of the model in `transformer/qwen2`, as PEFT writes it. `dora.safetensors`: ``logits`` and
  ``gradient.NAME`` are those of `expected.safetensors` there, with this adapter, by the adapter's parameters.
* `balance.safetensors`: for the models mixtral and qwen2-moe in `transformer/`, ``MODEL.loss`` is `load_balancing_loss_func` of each
  sequence of `expected.safetensors` but its last token, a mean over the sequences by their tokens, and ``MODEL.gradient.NAME`` its
  gradient by the parameter NAME, where it is not 0.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
from trl.experimental.gkd.gkd_trainer import GKDTrainer

FOLDER = Path(__file__).parent / "parts"
MODELS = Path(__file__).parent / "transformer"
VOCABULARY = 1100
LENGTHS = [5, 2, 9]


def enlarged(model):
    """A model whose parts all move its outputs."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) * (0.7 if "embed" in name else 1.2 / parameter.shape[1] ** 0.5))
    return model


def sequences(tokens, lengths):
    return torch.split(tokens.long(), [int(length) for length in lengths])


def distillation():
    torch.manual_seed(3)
    common = dict(vocab_size=VOCABULARY, num_hidden_layers=1, max_position_embeddings=32, use_cache=False,
                  tie_word_embeddings=True, num_attention_heads=2, num_key_value_heads=1)
    student = enlarged(LlamaForCausalLM(LlamaConfig(hidden_size=8, intermediate_size=12, **common)).float())
    teacher = enlarged(LlamaForCausalLM(LlamaConfig(hidden_size=12, intermediate_size=8, **common)).float()).eval()
    tokens = torch.randint(VOCABULARY, (sum(LENGTHS),))
    mask = (torch.rand(sum(LENGTHS)) < 0.7).int()
    student_logits, teacher_logits, labels, at = [], [], [], 0
    for part in sequences(tokens, LENGTHS):
        student_logits.append(student(part[None, :-1]).logits[0])
        with torch.no_grad():
            teacher_logits.append(teacher(part[None, :-1]).logits[0])
        labels.append(torch.where(mask[at + 1 : at + len(part)] == 1, part[1:], -100))
        at += len(part)
    loss = GKDTrainer.generalized_jsd_loss(
        torch.cat(student_logits)[None], torch.cat(teacher_logits)[None], labels=torch.cat(labels)[None], beta=0
    )
    loss.backward()
    gradient = {f"gradient.{name}": parameter.grad.clone() for name, parameter in student.named_parameters()}
    for name, model in (("student", student), ("teacher", teacher)):
        model.save_pretrained(FOLDER / name)
        (FOLDER / name / "generation_config.json").unlink(missing_ok=True)
    save_file({"tokens": tokens.int(), "lengths": torch.tensor(LENGTHS).int(), "mask": mask,
               "loss": loss.detach().reshape(1), **gradient}, FOLDER / "distillation.safetensors")
    print("distillation", loss.item())


def dora():
    torch.manual_seed(4)
    expected = load_file(MODELS / "qwen2" / "expected.safetensors")
    base = AutoModelForCausalLM.from_pretrained(MODELS / "qwen2", attn_implementation="eager").float()
    config = LoraConfig(r=3, lora_alpha=5, use_dora=True, task_type="CAUSAL_LM",
                        target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"])
    model = get_peft_model(base, config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.4 * torch.randn_like(parameter))
            if "magnitude" in name:
                parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
    logits, loss, at = [], 0, 0
    for part in sequences(expected["tokens"], expected["lengths"]):
        out = model(input_ids=part[None]).logits[0]
        logits.append(out.detach())
        logp = torch.log_softmax(out[:-1], -1)
        entropy = -(logp.exp() * logp).sum(-1)
        chosen = logp.gather(1, part[1:, None])[:, 0]
        count = len(part) - 1
        loss = loss + (expected["dLogprob"][at : at + count] * chosen + expected["dEntropy"][at : at + count] * entropy).sum()
        at += count
    loss.backward()
    model.save_pretrained(FOLDER / "dora")
    (FOLDER / "dora" / "README.md").unlink(missing_ok=True)
    written = FOLDER / "dora" / "adapter_config.json"
    written.write_text(json.dumps(json.loads(written.read_text()) | {"base_model_name_or_path": None}, indent=2))
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    gradient = {f"gradient.{name.replace('.default', '')}": value for name, value in gradients.items()}
    save_file({"logits": torch.cat(logits), **gradient}, FOLDER / "dora.safetensors")
    print("dora", loss.item(), *list(gradient)[:3])


def balance():
    out = {}
    for name in ("mixtral", "qwen2-moe"):
        expected = load_file(MODELS / name / "expected.safetensors")
        model = AutoModelForCausalLM.from_pretrained(MODELS / name, attn_implementation="eager").float().eval()
        config, parts = model.config, [part[:-1] for part in sequences(expected["tokens"], expected["lengths"])]
        total, loss = sum(len(part) for part in parts), 0
        experts = getattr(config, "num_local_experts", None) or config.num_experts
        for part in parts:
            if len(part) == 0:
                continue
            logits = model(input_ids=part[None], output_router_logits=True).router_logits
            loss = loss + load_balancing_loss_func(tuple(logits), experts, config.num_experts_per_tok) * len(part) / total
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            gradient = load_file(f"{folder}/model.safetensors")
        out[f"{name}.loss"] = loss.detach().reshape(1)
        out |= {f"{name}.gradient.{key}": value for key, value in gradient.items() if value.abs().max() > 0}
        print(name, loss.item(), len(gradient))
    save_file(out, FOLDER / "balance.safetensors")


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    distillation()
    dora()
    balance()
