"""Natural text for `npm run bench -- natural`: the sources of Python's documentation (PSF License 2, in Debian's python3.11-doc).

    python3 natural_text.py SOURCES FOLDER      needs tokenizers==0.23.3

Trains a byte-level BPE tokenizer of 4,096 tokens on the training files, and writes `shape` (config.json of a Llama of 10.4M
parameters, tokenizer), `train.jsonl` and `held.jsonl` (texts of at most 255 tokens), and `entries.jsonl`: what is documented,
with the first sentence about it. Each 20th file by the CRC of its path is held out of everything that is trained on.
"""
import json
import re
import sys
import zlib
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CONTEXT = 256
VOCABULARY = 4096
SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 384,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "intermediate_size": 1024,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "eos_token_id": 0,
}
KINDS = "function|method|class|attribute|data|exception|c:function"
ENTRY = re.compile(rf"^( *)\.\. ({KINDS}):: (.+)$")


def plain(text):
    """A paragraph on one line, without reStructuredText's roles."""
    text = re.sub(r":[\w:+-]+:`[!~]?([^`<]*?)(?: <[^`]*>)?`", r"\1", " ".join(text.split()))
    return text.replace("``", "").replace("::", ":")


def entries_of(lines):
    for i, line in enumerate(lines):
        found = ENTRY.match(line)
        if not found:
            continue
        indent, kind, name = found.groups()
        body, at = [], i + 1
        while at < len(lines) and (not lines[at].strip() or re.match(rf"^{indent} +(:|[\w:]+\(.*\)$)", lines[at])):
            at += 1  # Blank lines, options, and further signatures.
        while at < len(lines) and lines[at].strip() and lines[at].startswith(indent + " "):
            body.append(lines[at])
            at += 1
        text = plain(" ".join(body))
        sentence = re.match(r"^(.{20,200}?[.:])(?: |$)", text)
        if sentence and not text.startswith(".."):
            yield {"kind": kind.split(":")[-1], "name": name.strip(), "sentence": sentence.group(1)}


def pieces_of(text, tokenizer):
    """Paragraphs together, as many as fit in the context with an end; what is longer is cut by lines."""
    piece, size = "", 0
    for part in re.split(r"(?<=\n\n)", text):
        for line in [part] if len(tokenizer.encode(part).ids) < CONTEXT else part.splitlines(keepends=True):
            length = len(tokenizer.encode(line).ids)
            if size + length > CONTEXT - 2 and piece:
                yield piece
                piece, size = "", 0
            piece, size = piece + line, size + length
    if piece.strip():
        yield piece


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main(sources, folder):
    files = {str(path.relative_to(sources)): path.read_text(encoding="utf-8") for path in sorted(sources.rglob("*.rst.txt"))}
    held = {name for name in files if zlib.crc32(name.encode()) % 20 == 0}
    trained = [text for name, text in files.items() if name not in held]

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(trained, trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY

    shape = folder / "shape"
    shape.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(shape / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|end|>", "chat_template": TEMPLATE}
    (shape / "tokenizer_config.json").write_text(json.dumps(described, indent=2) + "\n")
    (shape / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")

    counts = {}
    for name, wanted in (("train", False), ("held", True)):
        texts = [piece for each, text in files.items() if (each in held) == wanted for piece in pieces_of(text, tokenizer)]
        write(folder / f"{name}.jsonl", [{"text": text} for text in texts])
        counts[name] = {
            "bytes": sum(len(text.encode()) for text in texts),
            "tokens": sum(len(tokenizer.encode(text).ids) for text in texts),
            "rows": len(texts),
        }
    seen, entries = set(), []
    for each, text in files.items():
        for entry in entries_of(text.split("\n")):
            if entry["sentence"] in seen:
                continue
            seen.add(entry["sentence"])
            entries.append({**entry, "held": each in held})
    write(folder / "entries.jsonl", entries)
    counts["entries"] = {"trained": sum(not e["held"] for e in entries), "held": sum(e["held"] for e in entries)}
    print(json.dumps(counts))


main(Path(sys.argv[1]), Path(sys.argv[2]))
