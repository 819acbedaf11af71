import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { Random } from '../../src/base/random.ts'
import { saveTransformer } from '../../src/language/transformer/folder.ts'
import { lora } from '../../src/language/transformer/lora.ts'
import { loadLora, saveLora } from '../../src/language/transformer/lora-folder.ts'
import { transformer } from '../../src/language/transformer/model.ts'
import { Numbers } from '../kernels/calls.ts'
import { decoder } from '../language/transformer/golden.ts'
import { attempt, findInstalled, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

/**
 * Loads a model and our adapter as anybody would and prints the logits of some tokens; then makes an adapter of its own, with
 * random weights, and saves it and its logits.
 */
const SCRIPT = `
import json, sys, torch
from transformers import AutoModelForCausalLM
from peft import LoraConfig, PeftModel, get_peft_model
base, adapter, tokens, own, answer, more = sys.argv[1:]
ids = torch.tensor([json.loads(tokens)])
torch.manual_seed(3)
with torch.no_grad():
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    ours = model(ids).logits[0].tolist()
    with model.disable_adapter():
        without = model(ids).logits[0].tolist()
    merged = model.merge_and_unload()(ids).logits[0].tolist()
    config = LoraConfig(r=3, lora_alpha=5, lora_dropout=0.1, target_modules=["v_proj", "gate_proj", "o_proj"], task_type="CAUSAL_LM", **json.loads(more))
    second = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).eval()
    count = sum(p.numel() for p in second.parameters() if p.requires_grad)
    for name, parameter in second.named_parameters():
        if "lora_" in name:
            parameter.copy_(0.4 * torch.randn_like(parameter))
    second.save_pretrained(own)
    theirs = second(ids).logits[0].tolist()
json.dump({"ours": ours, "without": without, "merged": merged, "theirs": theirs, "trainable": count}, open(answer, "w"))
`

let python: string | undefined
let why = ''
beforeAll(async () => {
  const found = await findInstalled('torch, transformers, peft')
  if ('python' in found) python = found.python
  else {
    why = found.why
    console.warn(`SKIPPED: adapters in PEFT (${why})`)
  }
}, PYTHON_MS)

beforeEach((context) => {
  context.skip(python === undefined, why)
})

describe('PEFT', () => {
  test.each(['llama', 'qwen2', 'qwen3', 'llama in its last layer, rank-stabilized', 'qwen2 with magnitudes'])(
    'loads our adapter of a %s, and we load its own: the same logits',
    async (name) => {
      const [family, isPart] = [name.split(' ')[0]!, name.includes('layer')]
      const hasMagnitude = name.includes('magnitudes')
      const some = isPart ? { layers: [1], rankStabilized: true } : hasMagnitude ? { magnitude: true } : {}
      const size = { vocab_size: 40, hidden_size: 16, num_hidden_layers: 2, intermediate_size: 24 }
      const heads = { num_attention_heads: 4, num_key_value_heads: 2, head_dim: 4, max_position_embeddings: 64 }
      const others = { rms_norm_eps: 1e-6, rope_theta: 5e4, initializer_range: 0.3, tie_word_embeddings: true }
      const model = transformer({ model_type: family, ...size, ...heads, ...others })
      const weights = new Float32Array(model.numParameters)
      model.initialize(weights, new Random(2), 0)
      const folder = await temporaryFolder()
      const [base, adapter, own, answer] = ['base', 'adapter', 'own', 'answer.json'].map((name) =>
        join(folder, name),
      ) as [string, string, string, string]
      await saveTransformer(base, model, weights)
      const ours = lora(model, {
        rank: 4,
        alpha: 6,
        dropout: 0.1,
        targets: ['q_proj', 'o_proj', 'up_proj', 'down_proj'],
        ...some,
      })
      const adapterWeights = new Numbers(3).floats(ours.numParameters, -0.3, 0.3)
      await saveLora(adapter, ours, adapterWeights, base)

      const tokens = [3, 39, 0, 17, 17, 4]
      const { code, stderr } = await attempt(python!, [
        '-c',
        SCRIPT,
        base,
        adapter,
        JSON.stringify(tokens),
        own,
        answer,
        JSON.stringify(
          isPart ? { use_rslora: true, layers_to_transform: [1] } : hasMagnitude ? { use_dora: true } : {},
        ),
      ])
      expect(code, stderr).toBe(0)
      const logits = JSON.parse(await readFile(answer, 'utf8'))
      const theirs = await loadLora(own, model)
      expect(theirs.model.numParameters).toBe(logits.trainable)
      expect(theirs.model.settings).toEqual({
        rank: 3,
        alpha: 5,
        dropout: 0.1,
        targets: ['v_proj', 'o_proj', 'gate_proj'],
        ...some,
      })
      for (const [adapted, wanted] of [
        [{ model: ours, weights: adapterWeights }, logits.ours],
        [{ model: ours, weights: adapterWeights }, logits.merged],
        [theirs, logits.theirs],
        [undefined, logits.without],
      ] as const) {
        const network = decoder(model, weights, 'simd', 4, 40, adapted)
        tokens.forEach((token, i) => {
          network.columns.forward.token[0] = token
          network.columns.forward.position[0] = i
          network.advance(1, {}, false)
          for (let j = 0; j < 40; j++) expect(Math.abs(network.columns.logits[j]! - wanted[i][j])).toBeLessThan(1e-4)
        })
      }
      const apart = logits.ours.flat().map((logit: number, i: number) => Math.abs(logit - logits.without.flat()[i]))
      expect(Math.max(...apart)).toBeGreaterThan(0.1)
    },
    PYTHON_MS,
  )
})
