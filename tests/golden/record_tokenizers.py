#!/usr/bin/env python3
"""Records small tokenizers, and what `transformers` makes of texts and conversations with them.

The folders in `tokenizers/` beside this file were made, from the repository root, by

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install tokenizers==0.23.3 transformers==5.23.0 jinja2==3.1.6
    /tmp/venv/bin/python tests/golden/record_tokenizers.py

Each folder is a tokenizer trained on the sentences below, in the form of a family:

* ``qwen2``: byte-level BPE, NFC, single digits, no token at the start; its template puts a system message of its own first.
* ``llama3``: byte-level BPE, digits in threes, ``ignore_merges``, and a token at the start; its template trims messages.
* ``smollm``: byte-level BPE as GPT-2's, every digit alone; two templates, one of them for tools.
* ``llama``: sentencepiece-like BPE with byte fallback; spaces are U+2581, and one is put before a text.
* ``mistral``: the same with the Metaspace pre-tokenizer, which puts one before the first word alone.

``expected.json`` in each has

* ``texts``: a text, its ids, its ids where spelled-out special tokens are text (``plain``), what the ids decode to, and what
  without special tokens (``said``);
* ``begin``: ids that transformers puts before a text;
* ``conversations``: messages, what the template makes of them, with and without a generation prompt, and the ids.
"""

import json
import shutil
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

FOLDER = Path(__file__).parent / "tokenizers"

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "A lane is one slot in which an agent acts; a column is one typed array.",
    "What is 12 plus 34? It is 46. What is 123 minus 45? It is 78.",
    "Systems fill columns, kernels turn columns into columns, tables are columns with names.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë.",
    "def add(a, b):\n    return a + b\n\nprint(add(1, 2))\n",
    "I'm sure they've said we'll go; it's what you'd do.",
    "Paris is the capital of France. The answer is Paris.",
] * 4

TEXTS = [
    "",
    " ",
    "Hello",
    " Hello",
    "  two spaces, and  more   ",
    "What is 12345 plus 67? It's 12412!",
    "line\nline\n\n\tindented\r\n",
    "naïve café, über; Zwölf",
    "e\u0301 is not composed",
    "日本語のテキスト、中文 und русский",
    "emoji 😀👩‍👩‍👧 🇫🇷 end",
    "zero\u200bwidth, no\u00a0break, next\u0085line, mark\ufeffhere",
    "don't WE'LL THEY'VE I'm",
    "a.b.c ... !? — “quoted”",
    "x = {'a': [1, 2.50]}  # comment",
    "\u0000\u0001\u007f",
    "<|im_start|>user\nhi<|im_end|>\n",
    "before <|eot_id|> after",
    "</s> <s>x</s>",
    "<think>hm</think> done",
    "𝒳 \U0001f9ff \U000e0001",
    "नमस्ते दुनिया ٣٤ ½ Ⅷ",
    "we'ſ we'S 'ſ\u212a I'\u212a a'ſb",
    "\ufeff\ufeff x \ufeff\n\u0085 \u200b\u180e y\u00a0\u00a0z\u3000",
    "1²3½4Ⅷ5①6٣7𑇡8\U00011de1",
    "a\u088fb \U00016ea0\U00016ebbc \u0295\u0294X \U000323b0y \u1acf",
    "\U000105d2\u0307 a\u0345\u1ad0\u0334 q\u0345\u0334 \U00011384\U000113bb",
    "\x85 \x85\x85\n \u2028\u2029x  \r\n\r\n  \tend \u200d",
    "ΣΑΣ İI ǅ ﬁ ㎏ ẞß",
    "▁ ▁▁x <0x41> <0xZZ> Ġ Ċé",
]

QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# As the families write theirs, cut to what conversations of this project have.
QWEN_TEMPLATE = """{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA3_TEMPLATE = (
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
    "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
SMOLLM_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}"
    "{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SMOLLM_TOOLS = "{{ '<|im_start|>system\n' + (tools | tojson) + '<|im_end|>\n' }}" + SMOLLM_TEMPLATE
LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)

CONVERSATIONS = [
    [{"role": "user", "content": "What is 12 plus 34?"}],
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": " It is 46. "}],
    [
        {"role": "user", "content": "Hi 😀"},
        {"role": "assistant", "content": "Hello, naïve fox"},
        {"role": "user", "content": "And 1 + 2?\n"},
    ],
    [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}],
]


def special(*contents):
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def byte_level(pattern, vocabulary, specials, others=(), normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pattern is None:
        split = pre_tokenizers.Digits(individual_digits=True)
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(content, special=False, normalized=False) for content in others])
    tokenizer.add_special_tokens(special(*specials))
    return tokenizer


def begin_with(tokenizer, token, *before):
    template = processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, tokenizer.token_to_id(token))])
    tokenizer.post_processor = processors.Sequence([*before, template]) if before else template


def sentencepiece(metaspace):
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    trainer = trainers.BpeTrainer(
        vocab_size=620, special_tokens=["<unk>", "<s>", "</s>", *bytes_], show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    state = json.loads(trained.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < 3]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    strip = [] if metaspace else [decoders.Strip(" ", 1, 0)]
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        strip = [decoders.Strip(" ", 1, 0)]
    else:
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    begin_with(tokenizer, "<s>")
    return tokenizer


def write(folder, tokenizer, config, **files):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    state = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n")
    for name, content in {"tokenizer_config.json": config, **files}.items():
        text = content if isinstance(content, str) else json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (folder / name).write_text(text)


def record(folder):
    plain = AutoTokenizer.from_pretrained(folder, clean_up_tokenization_spaces=False)
    texts = []
    for text in TEXTS:
        ids = plain.encode(text, add_special_tokens=False)
        backend = plain.backend_tokenizer
        backend.encode_special_tokens = True
        without = backend.encode(text, add_special_tokens=False).ids
        backend.encode_special_tokens = False
        texts.append({"text": text, "ids": ids, "plain": without, "decoded": plain.decode(ids),
                      "said": plain.decode(ids, skip_special_tokens=True)})
    conversations = []
    for messages in CONVERSATIONS:
        entry = {"messages": messages}
        try:
            entry["text"] = plain.apply_chat_template(messages, tokenize=False)
            entry["prompt"] = plain.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            entry["ids"] = plain.encode(entry["prompt"], add_special_tokens=False)
        except Exception as error:
            entry["error"] = str(error)
        conversations.append(entry)
    begin = plain.encode("x")[: -len(plain.encode("x", add_special_tokens=False))]
    expected = {"texts": texts, "begin": begin, "conversations": conversations}
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=True) + "\n")


def main():
    common = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}

    qwen2 = byte_level(QWEN_PATTERN, 420, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<think>", "</think>"],
                       normalizers.NFC())
    write(FOLDER / "qwen2", qwen2,
          {**common, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": QWEN_TEMPLATE},
          **{"generation_config.json": {"eos_token_id": [qwen2.token_to_id("<|im_end|>"),
                                                         qwen2.token_to_id("<|endoftext|>")]}})

    llama3 = byte_level(LLAMA3_PATTERN, 420, ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                                              "<|end_header_id|>", "<|eot_id|>"], ignore_merges=True)
    begin_with(llama3, "<|begin_of_text|>", processors.ByteLevel(trim_offsets=False))
    write(FOLDER / "llama3", llama3,
          {**common, "clean_up_tokenization_spaces": True,
           "bos_token": {"__type": "AddedToken", "content": "<|begin_of_text|>", "special": True}},
          **{"special_tokens_map.json": {"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|eot_id|>"}},
             "generation_config.json": {"eos_token_id": llama3.token_to_id("<|eot_id|>")},
             "chat_template.jinja": LLAMA3_TEMPLATE})

    smollm = byte_level(None, 400, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    write(FOLDER / "smollm", smollm,
          {**common, "eos_token": "<|im_end|>", "chat_template": [
              {"name": "default", "template": SMOLLM_TEMPLATE}, {"name": "tool_use", "template": SMOLLM_TOOLS}]})

    for name, metaspace in (("llama", False), ("mistral", True)):
        write(FOLDER / name, sentencepiece(metaspace),
              {**common, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": LLAMA_TEMPLATE})

    for folder in sorted(FOLDER.iterdir()):
        record(folder)
        print(folder.name, sum(file.stat().st_size for file in folder.iterdir()), "bytes")


main()
