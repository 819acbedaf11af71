/** Random models of each family's shape: logits, greedy tokens and gradients by transformers, and our files read by it. */
import { beforeAll, beforeEach, expect, test } from 'vitest'
import { readSafetensors, tensorValues } from '../../src/base/files/safetensors.ts'
import { bestKernelBuild, spansOf } from '../../src/kernels/bind.ts'
import { loadTransformer, saveTransformer } from '../../src/language/transformer/folder.ts'
import { fromStored } from '../../src/language/transformer/storage.ts'
import { decoder, packed } from '../language/transformer/golden.ts'
import { attempt, findInstalled, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const NAMES = [
  ...['mistral', 'mistral-full', 'qwen2', 'phi3', 'phi4', 'gemma', 'gemma2', 'gemma3', 'olmo2', 'granite', 'glm4'],
  ...['stablelm', 'phi', 'gpt2', 'llama-yarn', 'mixtral', 'qwen2-moe', 'qwen3-moe', 'olmoe'],
]
const SCRIPT = new URL('../support/random_transformers.py', import.meta.url).pathname
const CONTEXT = 3008

let python: string | undefined
let why = ''
beforeAll(async () => {
  const found = await findInstalled('torch, transformers')
  if ('python' in found) python = found.python
  else {
    why = found.why
    console.warn(`SKIPPED: random models of each family beside transformers (${why})`)
  }
}, PYTHON_MS)

beforeEach((context) => {
  context.skip(python === undefined, why)
})

test.each(NAMES)('%s', { timeout: 1_800_000 }, async (name) => {
  const folder = await temporaryFolder()
  const made = await attempt(python!, [SCRIPT, 'make', folder, name], 900_000)
  expect(made.code, made.stderr).toBe(0)
  const { model, weights } = await loadTransformer(folder)
  const { tensors } = await readSafetensors(`${folder}/expected.safetensors`)
  const take = (key: string) => tensorValues(tensors.get(key)!)
  const tokens = take('tokens') as Int32Array
  const { vocabularySize } = model.shape

  // Logits, as they are decoded after a prompt.
  const network = decoder(model, weights, bestKernelBuild(), 1, CONTEXT)
  const { token, position } = network.columns.forward
  for (const length of [64, 3000]) {
    const wanted = take(`logits.${length}`) as Float32Array
    const places = take(`at.${length}`) as Int32Array
    let fed = 0
    places.forEach((at, row) => {
      network.feed(0, tokens.subarray(fed, at), fed)
      network.flush()
      fed = at
      token[0] = tokens[at]!
      position[0] = at
      network.advance(1, {}, false)
      for (let j = 0; j < vocabularySize; j++) {
        const apart = Math.abs(network.columns.logits[j]! - wanted[row * vocabularySize + j]!)
        expect(apart, `token ${at} of ${length}, logit ${j}`).toBeLessThan(1e-4)
      }
    })
  }

  // 200 greedy tokens.
  const greedy = take('greedy') as Int32Array
  network.feed(0, greedy.subarray(0, 19))
  network.flush()
  for (let at = 19; at + 1 < greedy.length; at++) {
    token[0] = greedy[at]!
    position[0] = at
    network.advance(1, {}, false)
    expect(network.columns.chosen[0], `token ${at + 1}`).toBe(greedy[at + 1])
  }

  // The gradient of a step of cross-entropy.
  const work = packed(model, weights, bestKernelBuild(), 64, CONTEXT)
  const views = work.network.view(work.gradient)
  const count = work.network.pack(tokens, spansOf([0, 64]), 0, 1)
  work.network.differentiate(count, (_, { dLogprob }) => void dLogprob.fill(-1, 0, count), views)
  const named = [...tensors].flatMap(([key, tensor]) =>
    key.startsWith('gradient.') ? [[key.slice('gradient.'.length), tensor] as const] : [],
  )
  const gradients = fromStored(model, folder, new Map(named), model.parameters)
  model.parameters.forEach((parameter, index) => {
    const wanted = tensorValues(gradients.get(parameter.name)!) as Float32Array
    const scale = Math.max(1, ...wanted.map(Math.abs).sort().slice(-1))
    const worst = wanted.reduce((most, value, i) => Math.max(most, Math.abs(views[index]![i]! - value)), 0)
    expect(worst / scale, parameter.name).toBeLessThan(1e-4)
  })

  // What we write, transformers reads, and finds nothing missing.
  const saved = `${folder}/saved`
  await saveTransformer(saved, model, weights)
  const read = await attempt(python!, [SCRIPT, 'read', saved, JSON.stringify([...tokens.subarray(0, 64)])], 600_000)
  expect(read.code, read.stderr).toBe(0)
  const { wrong, logits } = JSON.parse(read.stdout) as { wrong: object; logits: number[] }
  expect(wrong).toEqual({})
  const last = (take('logits.64') as Float32Array).subarray(15 * vocabularySize)
  for (const [j, value] of logits.entries()) expect(Math.abs(value - last[j]!)).toBeLessThan(1e-4)
})
