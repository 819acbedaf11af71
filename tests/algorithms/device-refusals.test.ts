/** What `languageModel.device=webgpu` refuses by name, before a device is started. */
import { expect, test } from 'vitest'
import { startDeviceLearner } from '../../src/algorithms/tokens/device-learner.ts'
import { sft } from '../../src/algorithms/tokens/sft.ts'
import { copy } from '../../src/environments/tasks/sequences.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { lora } from '../../src/language/transformer/lora.ts'
import { type TransformerModel, transformer } from '../../src/language/transformer/model.ts'
import { createTrainer } from '../../src/training/loop/trainer.ts'
import { configureRun } from '../../src/training/run/run.ts'
import { planTextRun } from '../../src/training/text/learn/plan.ts'
import { createWorld } from '../../src/world/world.ts'

const model = transformer({
  ...{ model_type: 'llama', vocab_size: 40, hidden_size: 24, num_hidden_layers: 2, num_attention_heads: 4 },
  ...{ intermediate_size: 36, max_position_embeddings: 64, rms_norm_eps: 1e-5 },
})
type Shape = TransformerModel['shape']

/** What each part of a shape is refused as. */
const SHAPES: { readonly [part in keyof Shape]?: readonly [Shape[part], string] } = {
  experts: [{ count: 4, chosen: 2, width: 8, normalized: true, sharedWidth: 0, layers: [true, true] }, 'experts'],
  norm: ['layer', 'LayerNorm'],
  normsBefore: [false, 'no norms before its layers'],
  normsAfter: [true, 'norms after its layers'],
  parallel: [true, 'attention beside the feed-forward layer'],
  gated: [false, 'a feed-forward layer without a gate'],
  activation: ['tanh', 'the activation tanh'],
  queryKeyNorm: ['whole', 'queries and keys that are normed whole'],
  queryScale: [0.5, 'scaled queries'],
  attentionCap: [50, 'capped scores'],
  logitCap: [30, 'capped logits'],
  embeddingScale: [4, 'scaled embeddings'],
  residualScale: [0.2, 'scaled outputs of layers'],
  logitScale: [0.1, 'scaled logits'],
  headBias: [true, 'a bias of the head'],
  outputBias: [true, 'a bias after attention'],
  feedForwardBias: [true, 'biases of feed-forward layers'],
  rotaryWidth: [0, 'learned positions'],
  windowRope: [model.shape.rope, 'another rotation in windows'],
}

/** Parts of a shape whose values the shaders take. */
const TAKEN: readonly (keyof Shape)[] = [
  ...(['vocabularySize', 'width', 'numLayers', 'numHeads', 'numKeyHeads', 'headWidth', 'feedForwardWidth'] as const),
  ...(['contextLength', 'normEpsilon', 'normOffset', 'turnsNeighbors', 'rope', 'turned', 'windows'] as const),
  ...(['queryBias', 'tiedEmbeddings', 'layout'] as const),
]

/** Nothing of it is read before the refusals. */
const options = (given: Partial<Parameters<typeof startDeviceLearner>[0]>) =>
  ({ model, weights: new Float32Array(0), adapter: null, ...given }) as Parameters<typeof startDeviceLearner>[0]

test('every part of a shape is refused, or the shaders take its values', () => {
  expect([...Object.keys(SHAPES), ...TAKEN].toSorted()).toEqual(Object.keys(model.shape).toSorted())
})

const adapter = { lora: lora(model, { rank: 2, dropout: 0.1 }) } as never
const [first, ...others] = model.parameters

test.for([
  ...Object.entries(SHAPES).map(
    ([part, [value, name]]) => [name, { model: { ...model, shape: { ...model.shape, [part]: value } } }] as const,
  ),
  ['quantizeActivations', { model: { ...model, quantizesActivations: true } }],
  ['cacheBits=16', { model: { ...model, cacheBits: 16 as const } }],
  ['frozen parameters', { model: { ...model, parameters: [{ ...first!, isFrozen: true }, ...others] } }],
  ['loraDropout', { adapter }],
] as const)('a model with %s is refused', async ([name, given]) => {
  const refused = startDeviceLearner(options(given), 'adam')
  await expect(refused).rejects.toThrow(`languageModel.device: got webgpu, and a model with ${name}`)
})

test.for(['adam8bit', 'muon'])('the optimizer %s is refused', async (optimizer) => {
  const refused = startDeviceLearner(options({}), optimizer)
  await expect(refused).rejects.toThrow(`optimizer: got ${optimizer}, and languageModel.device=webgpu, expected adam`)
})

test('weights in fewer bits are refused', async () => {
  const refused = startDeviceLearner(options({ weights: {} as never }), 'adam')
  await expect(refused).rejects.toThrow('languageModel.quantize: got fewer bits than 32, and device=webgpu')
})

test.for([
  [
    'adapted, in bf16',
    { loraRank: 2, quantize: 16 },
    {},
    /^languageModel\.quantize: got fewer bits than 32, and device=webgpu, /,
  ],
  [
    'with a cache in bf16',
    { cacheBits: 16 },
    {},
    /^languageModel\.device: got webgpu, and a model with cacheBits=16, /,
  ],
  ['with muon', {}, { optimizer: 'muon' }, /^optimizer: got muon, and languageModel\.device=webgpu, expected adam$/],
] as const)(
  'a model %s is refused in one sentence: by the plan of a run, and by a trainer',
  async ([, model, learning, said]) => {
    const keys = (owner: string, given: object) =>
      Object.fromEntries(Object.entries(given).map(([key, value]) => [`${owner}.${key}`, String(value)]))
    const device = 'webgpu'
    const given = { mode: 'sft', ...keys('languageModel', { device, ...model }), ...keys('sft', learning) }
    await expect(planTextRun(await configureRun('text/copy', given))).rejects.toThrow(said)
    const policy = languageModel({ device, width: 16, layers: 1, heads: 2, ...model })
    const world = await createWorld({ environment: copy(), policy, numLanes: 1, seed: 1 })
    const trainer = createTrainer(world, sft({ updates: 1, ...learning }))
    for (let i = 0; i < 2; i++) await expect(trainer.updates().next()).rejects.toThrow(said)
    trainer.close()
  },
)

test.for([
  ['topK', '3'],
  ['topP', '0.9'],
  ['minP', '0.1'],
] as const)('sampling by %s is refused before anything is collected', async ([name, value]) => {
  const run = await configureRun('text/copy', { 'languageModel.device': 'webgpu', [`rl.${name}`]: value })
  await expect(planTextRun(run)).rejects.toThrow('languageModel.device: got webgpu, and sampling by topK, topP or minP')
})
