#!/usr/bin/env python3
"""Times llama.cpp as it decodes one sequence, as a peer to compare with.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install xllamacpp==2026.10.11549
    echo '{"prompt": [1, 2, 3], "tokens": 16, "ids": true}' | /tmp/venv/bin/python bench/peers/llama_cpp.py MODEL.gguf 1 512

The second word is the number of its threads, the third how many tokens it has room for. Each line asks for one answer of so many tokens, each the most probable one,
and is answered with the seconds from its first token to its last, and its ids where `ids` asks for them, in one line of JSON. Keys and values are
kept in f32.
"""

import json
import sys

import xllamacpp as llama

params = llama.CommonParams()
params.model.path = sys.argv[1]
params.n_parallel = 1
params.n_ctx = int(sys.argv[3])
params.verbosity = -1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[2])
params.cache_type_k = llama.ggml_type.GGML_TYPE_F32
params.cache_type_v = llama.ggml_type.GGML_TYPE_F32
# Its flash attention over keys in f32 takes three times as long as its other one.
params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = llama.Server(params)

for line in sys.stdin:
    asked = json.loads(line)
    answer = server.handle_completions(
        {
            "prompt": asked["prompt"],
            "n_predict": asked["tokens"],
            "ignore_eos": True,
            "cache_prompt": False,
            "samplers": ["top_k"],
            "top_k": 1,
            # It tells ids only beside log-probabilities, which cost it time.
            **({"logprobs": 1} if asked["ids"] else {}),
        }
    )
    told = answer["choices"][0]["logprobs"]
    seconds = answer["timings"]["predicted_ms"] / 1000
    print(json.dumps({"ids": told and [each["id"] for each in told["content"]], "seconds": seconds}), flush=True)
