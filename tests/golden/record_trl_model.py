#!/usr/bin/env python3
"""Records a tiny model, a batch, and what TRL's GRPOTrainer makes of both: losses, and gradients by every weight.

The folder `trl/` beside this file was made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install trl==1.16.0 torch==2.15.0 transformers==5.23.0
    /tmp/venv/bin/python tests/golden/record_trl_model.py

(its JSON repeats the versions and the command). It holds

* a Llama as `save_pretrained` writes it, in f32;
* ``batch.json``: token sequences of prompts and completions of different lengths, one after another: those of sequence i
  are ``offsets[i]`` to ``offsets[i + 1]``. ``lossMask`` is 0 for the prompts' tokens and for tokens of tools within the
  completions. Groups of ``group_size`` follow one another. ``oldLogprob`` and ``referenceLogprob`` are 0 for prompts.
  ``cases`` are calls of ``GRPOTrainer._compute_loss``, the trainer's own methods throughout, with ``arguments`` of
  GRPOConfig. Advantages are by the statements of TRL that ``record_trl.py`` takes out of its source;
* ``gradients.safetensors``: ``CASE.NAME`` is the gradient of the case's loss by the parameter NAME.
"""

import importlib.metadata
import json
import platform
import shutil
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from record_trl import GROUP_SIZE, group_advantages
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

COMMAND = "python tests/golden/record_trl_model.py"
FOLDER = Path(__file__).resolve().parent / "trl"
VOCABULARY = 12
TEMPERATURE = 0.8
MAX_COMPLETION_LENGTH = 9
PROMPTS = [2, 5, 3]
COMPLETIONS = [1, 9, 3, 4, 5, 2, 7, 4, 6, 8, 1, 3]
REWARDS = [1.0, 0.0, 0.0, 0.25, 0.5, -0.5, 0.5, 0.75, -1.0, 2.0, 0.5, 1.5]
CASES = {
    "grpo": {"loss_type": "grpo"},
    "grpo with a KL penalty": {"loss_type": "grpo", "beta": 0.04},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "dapo with a KL penalty": {"loss_type": "dapo", "epsilon_high": 0.28, "beta": 0.1},
}


def make_model():
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=False, use_cache=False,
        )
    ).float()
    with torch.no_grad():  # Larger than a fresh model's, so that a mistake in any part moves the loss.
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) * (1 if "embed" in name else 1.2 / parameter.shape[1] ** 0.5))
    return model


def make_tokenizer():
    words = {str(i): i for i in range(VOCABULARY - 2)} | {"<end>": VOCABULARY - 2, "<pad>": VOCABULARY - 1}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")


def make_trainer(arguments):
    folder = tempfile.mkdtemp()
    config = GRPOConfig(
        output_dir=folder, report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False,
        per_device_train_batch_size=len(REWARDS), num_generations=GROUP_SIZE, temperature=TEMPERATURE,
        max_completion_length=MAX_COMPLETION_LENGTH, **arguments,
    )
    return GRPOTrainer(
        model=str(FOLDER), args=config, processing_class=make_tokenizer(),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_list([{"prompt": "1"}] * len(REWARDS)),
    )


def make_batch(trainer):
    count = len(REWARDS)
    prompts = [torch.randint(VOCABULARY - 1, (PROMPTS[i // GROUP_SIZE],)) for i in range(0, count, GROUP_SIZE)]
    width = max(PROMPTS)
    prompt_ids = torch.full((count, width), VOCABULARY - 1)
    completion_ids = torch.full((count, MAX_COMPLETION_LENGTH), VOCABULARY - 1)
    prompt_mask, completion_mask = torch.zeros_like(prompt_ids), torch.zeros_like(completion_ids)
    for i, length in enumerate(COMPLETIONS):
        prompt = prompts[i // GROUP_SIZE]
        prompt_ids[i, width - len(prompt) :] = prompt
        prompt_mask[i, width - len(prompt) :] = 1
        completion_ids[i, :length] = torch.randint(VOCABULARY - 1, (length,))
        completion_mask[i, :length] = 1
    tool_mask = completion_mask.clone()
    tool_mask[1, 3:6] = tool_mask[7, 1] = 0
    with torch.no_grad():
        now, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, torch.cat([prompt_ids, completion_ids], 1), torch.cat([prompt_mask, completion_mask], 1),
            MAX_COMPLETION_LENGTH,
        )
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "tool_mask": tool_mask,
        "old_per_token_logps": now + 0.3 * torch.randn_like(now),
        "ref_per_token_logps": now + 0.4 * torch.randn_like(now),
        "num_items_in_batch": tool_mask.sum(),
    }


def ragged(batch, of_prompt, of_completion):
    pieces = []
    for i in range(len(REWARDS)):
        pieces.append(of_prompt[i][batch["prompt_mask"][i] == 1])
        pieces.append(of_completion[i][batch["completion_mask"][i] == 1])
    return torch.cat(pieces).tolist()


def main():
    torch.manual_seed(5)
    shutil.rmtree(FOLDER, ignore_errors=True)
    make_model().save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink(missing_ok=True)
    batch = make_batch(make_trainer({}))
    rewards = torch.tensor(REWARDS)
    gradients, cases = {}, {}
    for name, arguments in CASES.items():
        trainer = make_trainer(arguments)
        trainer.current_gradient_accumulation_steps = 1
        trainer.model.train()
        advantages = group_advantages(rewards, arguments.get("scale_rewards", "group"))
        loss = trainer._compute_loss(trainer.model, {**batch, "advantages": advantages})
        loss.backward()
        cases[name] = {"arguments": arguments, "loss": loss.item()}
        for parameter_name, parameter in trainer.model.named_parameters():
            gradients[f"{name}.{parameter_name}"] = parameter.grad.clone()
    lengths = batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)
    none = torch.zeros_like(batch["prompt_ids"])
    document = {
        "command": COMMAND,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("trl", "torch", "transformers")},
        },
        "group_size": GROUP_SIZE,
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "temperature": TEMPERATURE,
        "offsets": [0, *lengths.cumsum(0).tolist()],
        "reward": REWARDS,
        "token": ragged(batch, batch["prompt_ids"], batch["completion_ids"]),
        "lossMask": ragged(batch, none, batch["tool_mask"]),
        "oldLogprob": ragged(batch, none.float(), batch["old_per_token_logps"]),
        "referenceLogprob": ragged(batch, none.float(), batch["ref_per_token_logps"]),
        "cases": cases,
    }
    (FOLDER / "batch.json").write_text(json.dumps(document, indent=1) + "\n")
    save_file(gradients, FOLDER / "gradients.safetensors")


if __name__ == "__main__":
    main()
