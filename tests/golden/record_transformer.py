#!/usr/bin/env python3
"""Records tiny random language models, and what `transformers` makes of them.

The folders in `transformer/` beside this file were made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.15.0 transformers==5.23.0
    /tmp/venv/bin/python tests/golden/record_transformer.py

Each folder is a model as `save_pretrained` writes it, and `expected.safetensors`:

* ``tokens`` holds three sequences, one after another, of the lengths in ``lengths``.
* ``logits`` (tokens x vocabulary) are the model's, in f32, each sequence on its own.
* ``dLogprob`` and ``dEntropy`` have one number for each token that has a next one:
  the loss is the sum of dLogprob * log p(next token) + dEntropy * entropy over
  them, each sequence on its own, at temperature 1.
* ``gradient.NAME`` is the loss's gradient by the parameter NAME.
* ``cosine`` and ``sine`` are those of RoPE's angles at the positions in
  ``positions``, one for each pair of a head's elements.

Weights are larger than a fresh model's, and norms and biases are not at their
starting values, so that a mistake in any part moves the logits. The llama's head
width is no multiple of 4; qwen3's is not width / heads, and its model is in
several shards; smollm's weights are bf16. llama3's frequencies are scaled as Llama 3.1's
are: of its six one stays, one is in between and four are divided. smollm3's are
scaled linearly, and its second layer does not turn queries and keys.

The other families have small windows, so that sequences are longer, and caps and
scales that act. Gradients have the names that the model has in its file. qwen2-moe's
first layer has no experts.
"""

import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GemmaConfig, GemmaForCausalLM, Glm4Config,
    Glm4ForCausalLM, GPT2Config, GPT2LMHeadModel, GraniteConfig, GraniteForCausalLM, LlamaConfig, LlamaForCausalLM,
    MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM, OlmoeConfig,
    OlmoeForCausalLM, Phi3Config, Phi3ForCausalLM, PhiConfig, PhiForCausalLM, Qwen2Config, Qwen2ForCausalLM,
    Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM,
    SmolLM3Config, SmolLM3ForCausalLM, StableLmConfig, StableLmForCausalLM)

FOLDER = Path(__file__).parent / "transformer"
LENGTHS = [1, 9, 30]
POSITIONS = [0, 1, 63, 1000, 30000]

COMMON = dict(num_hidden_layers=2, max_position_embeddings=64, use_cache=False)
SMALL = dict(vocab_size=41, hidden_size=24, intermediate_size=28)
TOKENS = dict(pad_token_id=None, bos_token_id=1, eos_token_id=2)
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(
        vocab_size=61, hidden_size=24, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=False, rms_norm_eps=1e-5, **COMMON)),
    "smollm": (LlamaForCausalLM, LlamaConfig(
        vocab_size=50, hidden_size=24, intermediate_size=36, num_attention_heads=3, num_key_value_heads=1,
        tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, **COMMON)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(
        vocab_size=67, hidden_size=32, intermediate_size=44, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, **COMMON)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(
        vocab_size=53, hidden_size=16, intermediate_size=28, num_attention_heads=2, num_key_value_heads=1, head_dim=12,
        tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, **COMMON)),
    "llama3": (LlamaForCausalLM, LlamaConfig(
        vocab_size=41, hidden_size=24, intermediate_size=28, num_attention_heads=2, num_key_value_heads=1,
        tie_word_embeddings=True, rope_parameters={
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 48}, **COMMON)),
    "smollm3": (SmolLM3ForCausalLM, SmolLM3Config(
        vocab_size=43, hidden_size=16, intermediate_size=24, num_attention_heads=2, num_key_value_heads=1,
        pad_token_id=None, bos_token_id=1, eos_token_id=2, no_rope_layers=[1, 0],
        rope_parameters={"rope_type": "linear", "rope_theta": 5000000.0, "factor": 2.5}, **COMMON)),
    "mistral": (MistralForCausalLM, MistralConfig(
        **SMALL, num_attention_heads=4, num_key_value_heads=2, head_dim=6, sliding_window=7, **COMMON)),
    "phi3": (Phi3ForCausalLM, Phi3Config(
        **SMALL, **TOKENS, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True, rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, **COMMON)),
    "gemma": (GemmaForCausalLM, GemmaConfig(
        **SMALL, **TOKENS, num_attention_heads=2, num_key_value_heads=1, head_dim=10, **COMMON)),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config(
        **SMALL, **TOKENS, num_attention_heads=2, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=12,
        sliding_window=7, attn_logit_softcapping=2.0, final_logit_softcapping=3.0, **COMMON)),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig(
        **SMALL, **TOKENS, num_attention_heads=2, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=12,
        sliding_window=7, layer_types=["sliding_attention", "full_attention"], rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}, **COMMON)),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config(
        **SMALL, **TOKENS, num_attention_heads=4, num_key_value_heads=2, attention_bias=True, **COMMON)),
    "granite": (GraniteForCausalLM, GraniteConfig(
        **SMALL, **TOKENS, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, mlp_bias=True,
        embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.7, attention_multiplier=0.3, **COMMON)),
    "glm4": (Glm4ForCausalLM, Glm4Config(
        **SMALL, **TOKENS, num_attention_heads=4, num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-5, **COMMON)),
    "stablelm": (StableLmForCausalLM, StableLmConfig(
        **SMALL, **TOKENS, num_attention_heads=2, num_key_value_heads=2, use_qkv_bias=True, rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, **COMMON)),
    "stablelm-parallel": (StableLmForCausalLM, StableLmConfig(
        **SMALL, **TOKENS, num_attention_heads=3, num_key_value_heads=1, use_parallel_residual=True, rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}, **COMMON)),
    "phi": (PhiForCausalLM, PhiConfig(
        **SMALL, **TOKENS, num_attention_heads=2, num_key_value_heads=2, **COMMON)),
    "gpt2": (GPT2LMHeadModel, GPT2Config(
        vocab_size=41, n_embd=24, n_inner=28, n_head=4, n_layer=2, n_positions=64, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, **TOKENS, use_cache=False)),
    "mixtral": (MixtralForCausalLM, MixtralConfig(
        **SMALL, **TOKENS, num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_local_experts=4,
        num_experts_per_tok=2, **COMMON)),
    "qwen2-moe": (Qwen2MoeForCausalLM, Qwen2MoeConfig(
        **SMALL, **TOKENS, num_attention_heads=4, num_key_value_heads=2, num_experts=6, num_experts_per_tok=3,
        moe_intermediate_size=12, shared_expert_intermediate_size=20, decoder_sparse_step=2, **COMMON)),
    "qwen3-moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig(
        **SMALL, **TOKENS, num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_experts=8,
        num_experts_per_tok=3, moe_intermediate_size=12, norm_topk_prob=True, tie_word_embeddings=True, **COMMON)),
    "olmoe": (OlmoeForCausalLM, OlmoeConfig(
        **SMALL, **TOKENS, num_attention_heads=4, num_key_value_heads=2, num_experts=5, num_experts_per_tok=2,
        **COMMON)),
}


def angles(name, model):
    if name in ("gpt2", "gemma3"):
        return {}
    cosine, sine = model.model.rotary_emb(torch.zeros(1), torch.tensor([POSITIONS]))
    half = cosine.shape[-1] // 2
    return {
        "positions": torch.tensor(POSITIONS).int(),
        "cosine": cosine[0, :, :half].contiguous(),
        "sine": sine[0, :, :half].contiguous(),
    }


def gradients(model):
    """By the names that the files have: in memory, experts are in one tensor."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(f"{folder}/model.safetensors")


def record(name, make, config, seed):
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = make(config).float().eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias"):
                parameter.copy_(0.5 * torch.randn_like(parameter))
            elif "norm" in parameter_name or ".ln_" in parameter_name:
                parameter.copy_((0 if name.startswith("gemma") else 1) + 0.3 * torch.randn_like(parameter))
            elif "embed_tokens" in parameter_name or "wte" in parameter_name or "wpe" in parameter_name:
                parameter.copy_(torch.randn_like(parameter) * (0.5 if config.tie_word_embeddings else 1))
            else:
                parameter.copy_(torch.randn_like(parameter) * 1.2 / parameter.shape[1] ** 0.5)
            if name == "smollm":
                parameter.copy_(parameter.bfloat16().float())
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    saved = model
    if name == "smollm":
        saved = make(config).bfloat16()
        saved.load_state_dict(model.state_dict())
    saved.save_pretrained(folder, max_shard_size="6KB" if name == "qwen3" else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)

    sequences = [torch.randint(config.vocab_size, (length,)) for length in LENGTHS]
    logits, loss, derivatives = [], torch.zeros(()), []
    for tokens in sequences:
        out = model(tokens[None]).logits[0]
        logits.append(out.detach())
        if len(tokens) == 1:
            continue
        log_p = torch.log_softmax(out[:-1], -1)
        logprob = log_p.gather(1, tokens[1:, None])[:, 0]
        entropy = -(log_p.exp() * log_p).sum(-1)
        d_logprob, d_entropy = torch.randn_like(logprob), torch.randn_like(entropy)
        derivatives.append((d_logprob, d_entropy))
        loss = loss + (d_logprob * logprob + d_entropy * entropy).sum()
    loss.backward()
    expected = {
        **angles(name, model),
        "tokens": torch.cat(sequences).int(),
        "lengths": torch.tensor(LENGTHS).int(),
        "logits": torch.cat(logits),
        "dLogprob": torch.cat([d for d, _ in derivatives]),
        "dEntropy": torch.cat([d for _, d in derivatives]),
        **{f"gradient.{n}": gradient.contiguous() for n, gradient in gradients(model).items()},
    }
    save_file(expected, folder / "expected.safetensors")


for seed, (name, (make, config)) in enumerate(MODELS.items()):
    record(name, make, config, seed)
