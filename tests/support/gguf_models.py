"""Writes GGUF files with llama.cpp's own library: random models of each family, and one tensor of each type.

    python gguf_models.py FOLDER NAME

writes FOLDER/NAME.gguf with FOLDER/tokenizer/tokenizer.json (or its pieces) as its vocabulary. NAME `types` has tensors alone, whose
numbers are in FOLDER/TYPE.f32.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER, NAME = Path(sys.argv[1]), sys.argv[2]
WIDTH, HEADS, KEY_HEADS, HEAD, FED, LAYERS, CONTEXT = 64, 4, 2, 16, 96, 2, 128
EXPERTS, CHOSEN, EXPERT_FED = 6, 2, 32
RANDOM = np.random.default_rng(7)
CORPUS = [line for path in sorted(Path(__file__).parent.parent.parent.glob("docs/*.md")) for line in path.read_text().split("\n")]
# architecture, byte-level pattern (None: SentencePiece)
FAMILIES = {
    "llama": ("llama", "llama-bpe"), "mixtral": ("llama", None), "qwen2": ("qwen2", "qwen2"), "qwen3": ("qwen3", "qwen2"),
    "qwen3moe": ("qwen3moe", "qwen2"), "qwen2moe": ("qwen2moe", "qwen2"), "olmoe": ("olmoe", "olmo"),
    "gemma": ("gemma", None), "gemma2": ("gemma2", None), "gemma3": ("gemma3", None), "llama31": ("llama", "smollm"),
    "gemma2-27b": ("gemma2", None),
}
if NAME == "gemma2-27b":
    LAYERS, HEAD = 46, 8  # llama.cpp tells this model by its layers; its scores are not divided by the root of HEAD.


def normal(*shape, scale=None):
    return (RANDOM.standard_normal(shape) * (scale or 1 / shape[-1] ** 0.5)).astype(np.float32)


def blocks(count, size, scales):
    """Random bytes, with numbers in f16 at these places."""
    made = RANDOM.integers(0, 256, (count, size), dtype=np.uint8)
    for at, scale in scales.items():
        numbers = (RANDOM.uniform(0.5, 1.5, count) * scale).astype(np.float16)
        made[:, at:at + 2] = numbers.view(np.uint8).reshape(count, 2)
    return made


def write_types():
    writer = gguf.GGUFWriter(FOLDER / "types.gguf", "llama")
    values = normal(6, 512)
    for type_ in (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0):
        data = gguf.quants.quantize(values, type_)
        writer.add_tensor(type_.name, data, raw_dtype=type_)
        gguf.quants.dequantize(data, type_).astype(np.float32).tofile(FOLDER / f"{type_.name}.f32")
    for type_, size, scales in ((Type.Q4_K, 144, {0: 1e-4, 2: 8e-4}), (Type.Q6_K, 210, {208: 2e-5})):
        data = blocks(12, size, scales).reshape(6, 2 * size)
        writer.add_tensor(type_.name, data, raw_dtype=type_)
        gguf.quants.dequantize(data, type_).astype(np.float32).tofile(FOLDER / f"{type_.name}.f32")
    close(writer)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def byte_level(writer, pre):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get) + ["<|end|>", "<|user|>", "<think>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 3) + [3, 3, 4])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(len(tokens) - 3)
    writer.add_bos_token_id(len(tokens) - 2)
    return len(tokens)


def sentencepiece(writer, has_prefix):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=900, limit_alphabet=200, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    rank = {}
    for i, (left, right) in enumerate(model["merges"]):
        rank.setdefault(left + right, i)
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], *pieces, "<turn>"]
    scores = [0.0] * 259 + [-float(rank.get(piece, 1e6)) for piece in pieces] + [0.0]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(pieces) + [4])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(has_prefix)
    return len(tokens)


def write_model(architecture, pre):
    writer = gguf.GGUFWriter(FOLDER / f"{NAME}.gguf", architecture)
    vocabulary = sentencepiece(writer, architecture == "llama") if pre is None else byte_level(writer, pre)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FED)
    writer.add_head_count(HEADS)
    key_heads = HEADS if NAME == "olmoe" else KEY_HEADS
    writer.add_head_count_kv(key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5e5)
    writer.add_vocab_size(vocabulary)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_dimension_count(HEAD)
    has_experts = NAME in ("mixtral", "qwen3moe", "qwen2moe", "olmoe")
    if has_experts:
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(CHOSEN)
        if NAME.startswith("qwen"):
            writer.add_expert_feed_forward_length(EXPERT_FED)
        if NAME == "qwen2moe":
            writer.add_expert_shared_feed_forward_length(FED)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(5.0)
        writer.add_final_logit_softcapping(3.0)
    if architecture in ("gemma2", "gemma3"):
        writer.add_sliding_window(8)
    writer.add_tensor("token_embd.weight", normal(vocabulary, WIDTH, scale=0.5))
    if not NAME.startswith("gemma"):
        writer.add_tensor("output.weight", normal(vocabulary, WIDTH))
    if NAME == "llama31":
        writer.add_tensor("rope_freqs.weight", np.linspace(1, 8, HEAD // 2).astype(np.float32))

    def norm(name, width=WIDTH):
        writer.add_tensor(name, (1 + 0.3 * RANDOM.standard_normal(width)).astype(np.float32))

    norm("output_norm.weight")
    for layer in range(LAYERS):
        part = f"blk.{layer}."
        norm(part + "attn_norm.weight")
        norm(part + "ffn_norm.weight")
        for name, width in (("q", HEADS), ("k", key_heads), ("v", key_heads)):
            writer.add_tensor(f"{part}attn_{name}.weight", normal(width * HEAD, WIDTH, scale=0.2))
            if NAME in ("qwen2", "qwen2moe"):
                writer.add_tensor(f"{part}attn_{name}.bias", normal(width * HEAD, scale=0.3))
        writer.add_tensor(part + "attn_output.weight", normal(WIDTH, HEADS * HEAD))
        if NAME in ("qwen3", "qwen3moe", "gemma3"):
            norm(part + "attn_q_norm.weight", HEAD)
            norm(part + "attn_k_norm.weight", HEAD)
        if NAME == "olmoe":
            norm(part + "attn_q_norm.weight", HEADS * HEAD)
            norm(part + "attn_k_norm.weight", key_heads * HEAD)
        if architecture in ("gemma2", "gemma3"):
            norm(part + "post_attention_norm.weight")
            norm(part + "post_ffw_norm.weight")
        if has_experts:
            fed = EXPERT_FED if NAME.startswith("qwen") else FED
            writer.add_tensor(part + "ffn_gate_inp.weight", normal(EXPERTS, WIDTH, scale=0.5))
            writer.add_tensor(part + "ffn_gate_exps.weight", normal(EXPERTS, fed, WIDTH))
            writer.add_tensor(part + "ffn_up_exps.weight", normal(EXPERTS, fed, WIDTH))
            writer.add_tensor(part + "ffn_down_exps.weight", normal(EXPERTS, WIDTH, fed))
            if NAME == "qwen2moe":
                writer.add_tensor(part + "ffn_gate_inp_shexp.weight", normal(WIDTH, scale=0.5))
                writer.add_tensor(part + "ffn_gate_shexp.weight", normal(FED, WIDTH))
                writer.add_tensor(part + "ffn_up_shexp.weight", normal(FED, WIDTH))
                writer.add_tensor(part + "ffn_down_shexp.weight", normal(WIDTH, FED))
            continue
        writer.add_tensor(part + "ffn_gate.weight", normal(FED, WIDTH))
        writer.add_tensor(part + "ffn_up.weight", normal(FED, WIDTH))
        writer.add_tensor(part + "ffn_down.weight", normal(WIDTH, FED))
    close(writer)


if NAME == "types":
    write_types()
else:
    write_model(*FAMILIES[NAME])
