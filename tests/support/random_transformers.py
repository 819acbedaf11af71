"""Makes random models of the published families' shapes at reduced depth, and records what transformers does with them.

    python random_transformers.py make FOLDER NAME    writes FOLDER (a model) and FOLDER/expected.safetensors
    python random_transformers.py read FOLDER TOKENS  prints the logits of the last of the tokens, by the model in FOLDER

Widths, heads and windows are the published ones where they fit a test; vocabularies have 500 tokens, so that what is
compared is the layers. `expected.safetensors` has, at lengths 64 and 3,000, the logits of 16 positions; 200 greedy tokens
after the first 20; and the gradient of one step of cross-entropy over the first 64, by each tensor of the file.
"""

import hashlib
import json
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

COMMON = dict(vocab_size=500, max_position_embeddings=4096, pad_token_id=None, bos_token_id=1, eos_token_id=None,
              use_cache=True, tie_word_embeddings=True)


def rope(kind="default", theta=10000.0, **others):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **others}}


MODELS = {
    # 7B and 0.3: head width 128, a window of 4,096 cut to 1,024, so that 3,000 tokens are beyond it.
    "mistral": dict(model_type="mistral", hidden_size=512, intermediate_size=1792, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=1, head_dim=128, sliding_window=1024),
    "mistral-full": dict(model_type="mistral", hidden_size=512, intermediate_size=1792, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=1, head_dim=128, sliding_window=None),
    "qwen2": dict(model_type="qwen2", hidden_size=896, intermediate_size=1216, num_hidden_layers=2,
                  num_attention_heads=14, num_key_value_heads=2, use_sliding_window=True, sliding_window=512,
                  max_window_layers=1, **rope(theta=1e6)),
    "phi3": dict(model_type="phi3", hidden_size=768, intermediate_size=1024, num_hidden_layers=2,
                 num_attention_heads=8, num_key_value_heads=8, sliding_window=2047),
    "phi4": dict(model_type="phi3", hidden_size=768, intermediate_size=1024, num_hidden_layers=2,
                 num_attention_heads=6, num_key_value_heads=2, sliding_window=None,
                 **rope(partial_rotary_factor=0.75)),
    "gemma": dict(model_type="gemma", hidden_size=512, intermediate_size=2048, num_hidden_layers=2,
                  num_attention_heads=2, num_key_value_heads=1, head_dim=256),
    "gemma2": dict(model_type="gemma2", hidden_size=576, intermediate_size=1152, num_hidden_layers=2,
                   num_attention_heads=2, num_key_value_heads=1, head_dim=256, query_pre_attn_scalar=256,
                   sliding_window=1024),
    # 270M and 1B: five layers with a window of 512, then one without.
    "gemma3": dict(model_type="gemma3_text", hidden_size=640, intermediate_size=512, num_hidden_layers=6,
                   num_attention_heads=4, num_key_value_heads=1, head_dim=256, query_pre_attn_scalar=256,
                   sliding_window=512),
    "olmo2": dict(model_type="olmo2", hidden_size=512, intermediate_size=2048, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=4, **rope(theta=5e5)),
    "granite": dict(model_type="granite", hidden_size=512, intermediate_size=1024, num_hidden_layers=2,
                    num_attention_heads=8, num_key_value_heads=2, embedding_multiplier=12.0, logits_scaling=8.0,
                    residual_multiplier=0.22, attention_multiplier=0.015625),
    "glm4": dict(model_type="glm4", hidden_size=512, intermediate_size=1024, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, head_dim=128),
    "stablelm": dict(model_type="stablelm", hidden_size=512, intermediate_size=1376, num_hidden_layers=2,
                     num_attention_heads=8, num_key_value_heads=8, use_qkv_bias=True),
    "phi": dict(model_type="phi", hidden_size=512, intermediate_size=2048, num_hidden_layers=2,
                num_attention_heads=8, num_key_value_heads=8),
    "gpt2": dict(model_type="gpt2", n_embd=768, n_head=12, n_layer=2, n_positions=4096, resid_pdrop=0.0,
                 embd_pdrop=0.0, attn_pdrop=0.0),
    # Attention and experts of the published widths, cut to fewer experts and layers.
    "mixtral": dict(model_type="mixtral", hidden_size=512, intermediate_size=896, num_hidden_layers=2,
                    num_attention_heads=8, num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2,
                    **rope(theta=1e6)),
    # 1.5-A2.7B: 60 experts of width 1,408, four of them chosen, and a shared one of four times the width.
    "qwen2-moe": dict(model_type="qwen2_moe", hidden_size=512, intermediate_size=1408, num_hidden_layers=3,
                      num_attention_heads=8, num_key_value_heads=8, num_experts=60, num_experts_per_tok=4,
                      moe_intermediate_size=96, shared_expert_intermediate_size=384, norm_topk_prob=False,
                      mlp_only_layers=[1], **rope(theta=1e6)),
    # 30B-A3B: 128 experts, eight of them chosen, head width 128.
    "qwen3-moe": dict(model_type="qwen3_moe", hidden_size=512, intermediate_size=1536, num_hidden_layers=2,
                      num_attention_heads=8, num_key_value_heads=1, head_dim=128, num_experts=128,
                      num_experts_per_tok=8, moe_intermediate_size=96, norm_topk_prob=True, **rope(theta=1e6)),
    # 1B-7B: 64 experts, eight of them chosen; shares do not sum to 1.
    "olmoe": dict(model_type="olmoe", hidden_size=512, intermediate_size=256, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=4, num_experts=64, num_experts_per_tok=8),
    "llama-yarn": dict(model_type="llama", hidden_size=576, intermediate_size=1536, num_hidden_layers=2,
                       num_attention_heads=9, num_key_value_heads=3,
                       **rope("yarn", factor=4.0, original_max_position_embeddings=1024)),
}


def make(folder, name):
    torch.manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
    settings = {**COMMON, **MODELS[name]}
    if name == "gpt2":
        settings.pop("max_position_embeddings")
    config = AutoConfig.for_model(**settings)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) / max(parameter.shape[-1], 64) ** 0.5)
    model.save_pretrained(folder)
    tokens = torch.randint(500, (3000,))
    expected = {"tokens": tokens.int()}
    with torch.no_grad():
        for length in (64, 3000):
            at = torch.linspace(0, length - 1, 16).long()
            expected[f"at.{length}"] = at.int()
            expected[f"logits.{length}"] = model(tokens[None, :length]).logits[0, at].contiguous()
        greedy = model.generate(tokens[None, :20], max_new_tokens=200, do_sample=False)
        expected["greedy"] = greedy[0].int().contiguous()
    logits = model(tokens[None, :64]).logits[0]
    torch.nn.functional.cross_entropy(logits[:-1], tokens[1:64], reduction="sum").backward()
    # By the names that files have: in memory, experts are in one tensor.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    with tempfile.TemporaryDirectory() as gradients:
        model.save_pretrained(gradients)
        for stored, gradient in load_file(f"{gradients}/model.safetensors").items():
            expected[f"gradient.{stored}"] = gradient.contiguous()
    save_file(expected, f"{folder}/expected.safetensors")


def read(folder, tokens):
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    wrong = {name: sorted(map(str, keys)) for name, keys in info.items() if keys}
    with torch.no_grad():
        logits = model(torch.tensor([json.loads(tokens)])).logits[0, -1]
    print(json.dumps({"wrong": wrong, "logits": logits.tolist()}))


if sys.argv[1] == "make":
    make(*sys.argv[2:])
else:
    read(*sys.argv[2:])
