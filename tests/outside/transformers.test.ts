import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { Random } from '../../src/base/random.ts'
import { saveTransformer } from '../../src/language/transformer/folder.ts'
import { transformer } from '../../src/language/transformer/model.ts'
import { decoder } from '../language/transformer/golden.ts'
import { attempt, findInstalled, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** Loads a folder as anybody would, and prints the logits of some tokens. */
const SCRIPT = `
import json, sys, torch
from transformers import AutoModelForCausalLM
model, info = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
logits = model(torch.tensor([json.loads(sys.argv[2])])).logits[0]
wrong = {name: sorted(map(str, keys)) for name, keys in info.items() if keys}
json.dump({"wrong": wrong, "dtype": str(model.dtype), "logits": logits.tolist()}, open(sys.argv[3], "w"))
`

let python: string | undefined
let why = ''
beforeAll(async () => {
  const found = await findInstalled('torch, transformers')
  if ('python' in found) python = found.python
  else {
    why = found.why
    console.warn(`SKIPPED: loading our models with transformers (${why})`)
  }
}, PYTHON_MS)

beforeEach((context) => {
  context.skip(python === undefined, why)
})

describe('transformers', () => {
  test.each(['llama', 'qwen2', 'qwen3'])('loads a new %s that we saved, and makes the same logits', async (family) => {
    const size = { vocab_size: 40, hidden_size: 16, num_hidden_layers: 2, intermediate_size: 24 }
    const heads = { num_attention_heads: 4, num_key_value_heads: 2, head_dim: 4, max_position_embeddings: 64 }
    const others = { rms_norm_eps: 1e-6, rope_theta: 5e4, initializer_range: 0.3, tie_word_embeddings: true }
    const model = transformer({ model_type: family, ...size, ...heads, ...others })
    const weights = new Float32Array(model.numParameters)
    model.initialize(weights, new Random(2), 0)
    const folder = await temporaryFolder()
    await saveTransformer(folder, model, weights)

    const tokens = [3, 39, 0, 17, 17, 4]
    const answer = join(folder, 'answer.json')
    const { code, stderr } = await attempt(python!, ['-c', SCRIPT, folder, JSON.stringify(tokens), answer])
    expect(code, stderr).toBe(0)
    const { wrong, dtype, logits } = JSON.parse(await readFile(answer, 'utf8'))
    expect(wrong).toEqual({})
    expect(dtype).toBe('torch.float32')
    const network = decoder(model, weights, 'simd')
    tokens.forEach((token, i) => {
      network.columns.forward.token[0] = token
      network.columns.forward.position[0] = i
      network.advance(1, {}, false)
      for (let j = 0; j < 40; j++) expect(Math.abs(network.columns.logits[j]! - logits[i][j])).toBeLessThan(1e-4)
    })
  })
})
