"""Trains tokenizers of the published kinds, and records what the Rust library makes of texts with them.

    python hostile_tokenizers.py FOLDER

reads FOLDER/corpus.json (texts to train on) and FOLDER/texts.json, and writes for each kind FOLDER/KIND/tokenizer.json and
FOLDER/KIND.jsonl: for each text its ids, its ids where special tokens are text, and what the first ids decode to.
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = Path(sys.argv[1])
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{REST}"
LLAMA3 = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{REST}"
PHI4 = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(contractions):
    head = r"[^\r\n\p{L}\p{N}]?"
    return rf"{head}{UPPER}*{LOWER}+{contractions}|{head}{UPPER}+{LOWER}*{contractions}"


SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = rf"{cased(CONTRACTIONS + '?')}|\p{{N}}{{1,3}}|{SIGNS}"
TEKKEN = rf"{cased('')}|\p{{N}}|{SIGNS}"
CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def added(*contents, **how):
    return [AddedToken(content, **{"normalized": False, **how}) for content in contents]


def byte_level(corpus, split, specials, others=(), normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    if isinstance(split, str):
        first = pre_tokenizers.Split(Regex(split), behavior="isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    else:
        first, level = split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([first, level]) if first else level
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_tokens(list(others))
    tokenizer.add_special_tokens(added(*specials, special=True))
    return tokenizer


def sentencepiece(corpus, kind):
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=kind != "gemma")
    trained.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=2500, special_tokens=["<unk>", "<s>", "</s>", *bytes_], limit_alphabet=400, show_progress=False))
    state = json.loads(trained.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < 3]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    if kind == "mistral":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif kind == "gemma":
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
        lines = ["\n" * n for n in range(1, 9)] + ["▁" * n for n in range(2, 9)]
        tokenizer.add_tokens(added(*lines, "\t", "<table>", "</table>", "<b>", "</b>"))
        tokenizer.add_special_tokens(added("<start_of_turn>", "<end_of_turn>", special=True))
    else:
        del_ = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.pre_tokenizer, tokenizer.normalizer = None, del_
    if kind == "phi3":
        tokenizer.add_special_tokens(added("<|user|>", "<|end|>", "<|assistant|>", special=True, rstrip=True))
        tokenizer.add_special_tokens(added("<mask>", special=True, lstrip=True))
        tokenizer.add_tokens([AddedToken("Word", single_word=True, normalized=False)])
    strip = [] if kind == "gemma" else [decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return tokenizer


def kinds(corpus):
    runs = [AddedToken(" " * n, normalized=True) for n in range(31, 1, -1)]
    runs += [AddedToken("\t" * n, normalized=True) for n in range(9, 1, -1)]
    yield "gpt2", byte_level(corpus, None, ["<|endoftext|>"])
    yield "llama3", byte_level(corpus, LLAMA3, ["<|begin_of_text|>", "<|eot_id|>"], ignore_merges=True)
    yield "qwen", byte_level(corpus, QWEN, CHAT, added("<think>", "</think>"), normalizers.NFC())
    yield "smollm", byte_level(corpus, pre_tokenizers.Digits(individual_digits=True), CHAT)
    yield "phi2", byte_level(corpus, None, ["<|endoftext|>"], runs)
    yield "phi4", byte_level(corpus, PHI4, CHAT + ["<|im_sep|>"])
    yield "o200k", byte_level(corpus, O200K, ["<|endoftext|>"], ignore_merges=True)
    yield "tekken", byte_level(corpus, TEKKEN, ["<s>", "</s>", "[INST]", "[/INST]"], ignore_merges=True)
    for kind in ("llama2", "mistral", "gemma", "phi3"):
        yield kind, sentencepiece(corpus, kind)


def main():
    corpus = json.loads((FOLDER / "corpus.json").read_text())
    texts = json.loads((FOLDER / "texts.json").read_text())
    for kind, tokenizer in kinds(corpus):
        (FOLDER / kind).mkdir(exist_ok=True)
        tokenizer.save(str(FOLDER / kind / "tokenizer.json"))
        ids = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
        decoded = tokenizer.decode_batch(ids, skip_special_tokens=False)
        tokenizer.encode_special_tokens = True
        plain = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
        with open(FOLDER / f"{kind}.jsonl", "w") as file:
            for row in zip(ids, plain, decoded):
                file.write(json.dumps(row) + "\n")


main()
