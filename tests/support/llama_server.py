"""llama.cpp's own server, as the package xllamacpp has it: called with a GGUF file and a port; says when it listens."""

import sys
import threading

import xllamacpp as llama

params = llama.CommonParams()
params.model.path = sys.argv[1]
params.port = int(sys.argv[2])
params.n_parallel = 1
params.warmup = False
params.cpuparams.n_threads = 1
# In half precision, which it has by default, log-probabilities are up to 4e-3 nats away.
params.cache_type_k = llama.ggml_type.GGML_TYPE_F32
params.cache_type_v = llama.ggml_type.GGML_TYPE_F32
params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = llama.Server(params)
print("listening", flush=True)
threading.Event().wait()
