/** GGUF files that llama.cpp's library writes: the numbers of each type, and networks and tokenizers beside llama.cpp itself. */
import { mkdirSync, readFileSync } from 'node:fs'
import { beforeAll, beforeEach, expect, test } from 'vitest'
import { narrowF16, widenF16 } from '../../src/base/half.ts'
import type { WasmMemory } from '../../src/components/arena.ts'
import { bestKernelBuild, createKernels } from '../../src/kernels/bind.ts'
import type { Kernels } from '../../src/kernels/kernels.ts'
import { readGguf, readRows, withFile } from '../../src/language/gguf/file.ts'
import { saveGguf } from '../../src/language/gguf/write.ts'
import { loadLanguageModel } from '../../src/language/load-language-model.ts'
import { decoder } from '../language/transformer/golden.ts'
import { hostileTexts } from '../support/hostile-texts.ts'
import { freePort, startServer } from '../support/programs.ts'
import { attempt, findPython, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const PACKAGES = ['gguf==0.19.0', 'numpy==2.4.6', 'tokenizers==0.23.3', 'xllamacpp==2026.10.11549']
const NAMES = [
  ...[
    'llama',
    'llama31',
    'mixtral',
    'qwen2',
    'qwen3',
    'qwen2moe',
    'qwen3moe',
    'olmoe',
    'gemma',
    'gemma2',
    'gemma2-27b',
    'gemma3',
  ],
]
const support = new URL('../support/', import.meta.url).pathname

let python = ''
let why = ''
beforeAll(async () => {
  const found = await findPython(PACKAGES, 'gguf, tokenizers, xllamacpp')
  if ('python' in found) python = found.python
  else {
    why = found.why
    console.warn(`SKIPPED: GGUF files beside llama.cpp (${why})`)
  }
}, PYTHON_MS)
beforeEach((context) => context.skip(python === '', why))

async function made(name: string): Promise<string> {
  const folder = await temporaryFolder()
  mkdirSync(folder, { recursive: true })
  const { code, stderr } = await attempt(python, [`${support}gguf_models.py`, folder, name])
  expect(code, stderr).toBe(0)
  return folder
}

test('each type has the numbers that the library gives', async () => {
  const folder = await made('types')
  const gguf = readGguf(`${folder}/types.gguf`)
  expect([...gguf.tensors.keys()]).toEqual(['F32', 'F16', 'BF16', 'Q8_0', 'Q4_0', 'Q4_K', 'Q6_K'])
  for (const [name, tensor] of gguf.tensors) {
    const expected = new Float32Array(new Uint8Array(readFileSync(`${folder}/${name}.f32`)).buffer)
    expect(
      withFile(gguf.path, (file) => readRows(file, tensor, 0, 6)),
      name,
    ).toEqual(expected)
    expect(withFile(gguf.path, (file) => readRows(file, tensor, 2, 5))).toEqual(expected.subarray(2 * 512, 5 * 512))
  }
})

/** Our kernels, but for GELU, which llama.cpp looks up in a table: of f16, by f16. */
function withTheirGelu(memory: WasmMemory): Kernels {
  const plain = createKernels(memory, 'plain')
  const half = (x: Float32Array) => widenF16(narrowF16(x))
  return {
    ...createKernels(memory, bestKernelBuild()),
    activationForward(y, gate, up, activation, length) {
      plain.activationForward(y, gate.subarray(0, 0), half(gate.subarray(0, length)), activation, length)
      half(y.subarray(0, length)).forEach((value, i) => {
        y[i] = value * up[i]!
      })
    },
  }
}

/** Those that we write, too. */
const WRITTEN = ['llama', 'mixtral', 'qwen2', 'qwen3', 'qwen2moe', 'qwen3moe', 'olmoe']

test.each([
  ...NAMES.map((name) => [name, "the library's"] as const),
  ...WRITTEN.map((name) => [name, 'our own'] as const),
])(
  'llama.cpp gives the log-probabilities and ids that we give (%s, %s file)',
  { timeout: 300_000 },
  async (name, whose) => {
    const given = `${await made(name)}/${name}.gguf`
    const { model, weights, tokenizer } = await loadLanguageModel(given)
    const path = whose === 'our own' ? given.replace('.gguf', '-again.gguf') : given
    if (path !== given) await saveGguf(path, model, weights, tokenizer)
    const port = await freePort()
    const server = await startServer(python, [`${support}llama_server.py`, path, String(port)], {}, 'listening\n')
    const ask = async (route: string, body: object) => {
      const answer = await fetch(`http://127.0.0.1:${port}/${route}`, { method: 'POST', body: JSON.stringify(body) })
      return JSON.parse(await answer.text())
    }
    try {
      const texts = [
        'Hello, world! 1234567 x',
        '  two  spaces\n\n\tand a tab ',
        'Ünïcödé 漢字 🙂 <think>',
        "it's WE'LL o'clock",
      ]
      for (const text of [...texts, ...hostileTexts(200, 5)]) {
        // Qwen's published tokenizer composes characters; llama.cpp does not.
        if (text === '' || (name.startsWith('qwen') && text !== text.normalize('NFC'))) continue
        const { tokens } = await ask('tokenize', { content: text, add_special: false, parse_special: false })
        expect(tokenizer.encode(text), JSON.stringify(text)).toEqual(tokens)
      }

      const { vocabularySize } = model.shape
      const hasTable = name.startsWith('gemma')
      const network = decoder(model, weights, hasTable ? withTheirGelu : bestKernelBuild(), 1, 64)
      // A number in the middle of two of f16 may be rounded to the other; the largest model has 46 layers of them.
      const tolerance = name === 'gemma2-27b' ? 1e-2 : hasTable ? 3e-4 : 1e-4
      const { token, position } = network.columns.forward
      const ids = Array.from({ length: 40 }, (_, i) => 300 + ((i * 37) % 500))
      for (const length of [1, 12, 40]) {
        const prompt = ids.slice(0, length)
        // It tells nothing of an answer that ends at once: another seed draws another token.
        let said: { readonly top_logprobs: readonly { readonly id: number; readonly logprob: number }[] }[] | undefined
        for (let seed = 1; said === undefined; seed++) {
          const drawn = { n_predict: 1, n_probs: vocabularySize, temperature: 1, samplers: [], seed }
          const answer = await ask('completion', { prompt, cache_prompt: false, ...drawn })
          expect(answer.error).toBeUndefined()
          said = answer.completion_probabilities
        }
        const theirs = new Float64Array(vocabularySize).fill(Number.NaN)
        for (const { id, logprob } of said[0]!.top_logprobs) theirs[id] = logprob
        network.feed(0, prompt.slice(0, -1))
        network.flush()
        token[0] = prompt.at(-1)!
        position[0] = length - 1
        network.advance(1, {}, false)
        const logits = network.columns.logits.subarray(0, vocabularySize)
        const max = Math.max(...logits)
        const sum = Math.log(logits.reduce((all, logit) => all + Math.exp(logit - max), 0))
        let compared = 0
        theirs.forEach((logprob, id) => {
          if (Number.isNaN(logprob)) return
          compared++
          expect(Math.abs(logits[id]! - max - sum - logprob), `token ${id} after ${length}`).toBeLessThan(tolerance)
        })
        expect(compared).toBeGreaterThan(vocabularySize / 2)
      }
    } finally {
      server.process.kill()
      await server.ended
    }
  },
)
