import { readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import * as built from '../../dist/src/index.js'
import { readSafetensors, type Tensor, tensorOf, tensorValues, writeSafetensors } from '../../src/entries/data.ts'
import {
  box,
  discrete,
  InputError,
  loadPolicy,
  loadWeights,
  mlp,
  type PolicyModel,
  resumeRun,
  runTrainer,
  saveWeights,
  startRun,
} from '../../src/index.ts'
import { listCheckpoints } from '../../src/training/folder/checkpoint.ts'
import { SMALL } from '../support/command.ts'
import { fingerprint, smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

const observations = box({ low: -1, high: 1, shape: [4] })
const model = mlp({ hidden: [8] }).build(observations, discrete(2))

/** Weights of which no two are the same. */
function numbers({ numParameters }: PolicyModel): Float32Array {
  return Float32Array.from({ length: numParameters }, (_, i) => Math.sin(i + 1))
}

let folder: string
let path: string
beforeEach(async () => {
  folder = await temporaryFolder()
  path = join(folder, 'weights.safetensors')
})

/** A file of weights, changed tensor by tensor: what is undefined is left out. */
async function write(change: (tensor: Tensor) => Tensor | undefined): Promise<void> {
  const whole = join(folder, 'whole.safetensors')
  await saveWeights(whole, model, numbers(model))
  const { tensors } = await readSafetensors(whole)
  await writeSafetensors(
    path,
    [...tensors.values()].map(change).filter((tensor) => tensor !== undefined),
  )
}

describe('weights in a file', () => {
  test('come back as they went, by the names and shapes of the parameters', async () => {
    for (const space of [discrete(2), box({ low: -1, high: 1, shape: [3] })]) {
      const each = mlp({ hidden: [8, 5], sharedTrunk: true }).build(observations, space)
      await saveWeights(path, each, numbers(each))
      const { tensors } = await readSafetensors(path)
      expect([...tensors.values()].map(({ name, shape, type }) => [name, shape, type])).toEqual(
        each.parameters.map(({ name, shape }) => [name, shape, 'F32']),
      )
      expect(await loadWeights(path, each)).toEqual(numbers(each))
    }
  })

  test.each([
    ['F16', 2 ** -11],
    ['BF16', 2 ** -8],
  ] as const)('in %s are rounded once, and then stay what they are', async (type, step) => {
    await saveWeights(path, model, numbers(model), type)
    const rounded = await loadWeights(path, model)
    const wanted = numbers(model)
    rounded.forEach(
      (value, i) => void expect(Math.abs(value - wanted[i]!)).toBeLessThanOrEqual(step * Math.abs(wanted[i]!)),
    )
    expect(rounded).not.toEqual(wanted)
    await saveWeights(path, model, rounded, type)
    expect(await loadWeights(path, model)).toEqual(rounded)
  })

  test.each<[string, (tensor: Tensor) => Tensor | undefined, string]>([
    [
      'without a parameter',
      (tensor) => (tensor.name === 'actor.head.bias' ? undefined : tensor),
      'got no actor.head.bias, expected actor.head.bias: F32, F16, BF16 of shape [2]',
    ],
    [
      'with a parameter of another shape',
      (tensor) => (tensor.name === 'actor.0.weight' ? { ...tensor, shape: [8, 4] } : tensor),
      'got actor.0.weight: F32 of shape [8,4], expected actor.0.weight: F32, F16, BF16 of shape [4,8]',
    ],
    [
      'with a parameter of another type',
      (tensor) =>
        tensor.name === 'critic.0.bias'
          ? tensorOf(tensor.name, Float64Array.from(tensorValues(tensor), Number))
          : tensor,
      'got critic.0.bias: F64 of shape [8]',
    ],
    [
      'with a tensor under a name of its own',
      (tensor) => (tensor.name === 'actor.head.bias' ? { ...tensor, name: 'actor.head.bais' } : tensor),
      'got no actor.head.bias',
    ],
    ...[Number.NaN, Number.NEGATIVE_INFINITY].map((value): [string, (tensor: Tensor) => Tensor, string] => [
      `with ${value} in a parameter`,
      (tensor) =>
        tensor.name === 'critic.head.weight'
          ? tensorOf(tensor.name, (tensorValues(tensor) as Float32Array).with(3, value), tensor.shape, 'BF16')
          : tensor,
      `critic.head.weight: got ${value} in element 3, expected finite weights`,
    ]),
  ])('%s are refused', async (_, change, message) => {
    await write(change)
    await expect(loadWeights(path, model)).rejects.toThrow(InputError)
    await expect(loadWeights(path, model)).rejects.toThrow(message)
  })

  test('with more than the model has are refused', async () => {
    const larger = mlp({ hidden: [8, 8] }).build(observations, discrete(2))
    await saveWeights(path, larger, numbers(larger))
    await expect(loadWeights(path, model)).rejects.toThrow(
      'got tensor actor.1.weight, expected only those of the model',
    )
  })

  test('are refused on their way out, by name, where they are of no use', async () => {
    const bad = numbers(model)
    bad[model.parameters[1]!.offset + 2] = Number.NaN
    await expect(saveWeights(path, model, bad)).rejects.toThrow('weights, actor.0.bias: got NaN in element 2')
    await expect(saveWeights(path, model, new Float32Array(3))).rejects.toThrow('weights: got 3 numbers, expected 107')
    await expect(saveWeights(path, model, numbers(model), 'I8' as never)).rejects.toThrow(
      'type: got "I8", expected one of',
    )
    bad[model.parameters[1]!.offset + 2] = 1e6
    await expect(saveWeights(path, model, bad, 'F16')).rejects.toThrow('tensor actor.0.bias: got 1000000 in element 2')
    expect(await readdir(folder)).toEqual([])
  })
})

describe('a run that begins with weights from a file', () => {
  /** The weights of a small run's policy; `seed` alone makes them differ. */
  async function initial(): Promise<Float32Array> {
    const trainer = await runTrainer(await smallRun('seed=9'))
    const { weights } = trainer.world.cohorts[0]!
    await saveWeights(path, mlp({ hidden: [8] }).build(observations, discrete(2)), weights)
    return weights.slice()
  }

  test('has them before its first update, and its first checkpoint keeps them', async () => {
    const weights = await initial()
    const run = await startRun(await smallRun(`weights=${path}`), join(folder, 'run'))
    expect(run.trainer.world.cohorts[0]!.weights).toEqual(weights)
    expect(await listCheckpoints(join(folder, 'run'))).toEqual([0])
    expect((await loadPolicy(join(folder, 'run'))).weights).toEqual(weights)
  })

  test('learns from them: elsewhere than from the seed, and the same whenever it is stopped and resumed', async () => {
    await initial()
    const [whole, drawn, resumed] = ['whole', 'drawn', 'resumed'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ]
    await (await startRun(await smallRun(`weights=${path}`), whole)).train()
    await (await startRun(await smallRun(), drawn)).train()
    await startRun(await smallRun(`weights=${path}`), resumed) // Stopped before its first update.
    await rm(path) // A run that is resumed does not ask for the file again.
    await (await resumeRun(resumed)).train()
    expect(await fingerprint(resumed)).toEqual(await fingerprint(whole))
    expect((await loadPolicy(whole)).weights).not.toEqual((await loadPolicy(drawn)).weights)
  })

  test('takes the same way with several threads', async () => {
    await initial()
    const folders = ['one', 'two'].map((name) => join(folder, name))
    for (const [i, to] of folders.entries()) {
      const words = [...SMALL, `weights=${path}`, `threads=${i + 1}`].map((word) => word.split('='))
      const definition = await built.configureRun('CartPole-v1', Object.fromEntries(words))
      await (await built.startRun(definition, to)).train()
    }
    const { weights } = await loadPolicy(folders[1]!)
    expect(weights).toEqual((await loadPolicy(folders[0]!)).weights)
  })

  test.each<[string, () => Promise<void>, RegExp]>([
    ['is not there', async () => {}, /weights\.safetensors: got ENOENT/],
    ['is cut short', () => writeFile(path, new Uint8Array(5)), /weights\.safetensors: got 5 bytes/],
    [
      'holds NaN',
      async () => {
        const bias = (tensor: Tensor) => tensorOf(tensor.name, Float32Array.of(Number.NaN))
        await write((tensor) => (tensor.name === 'critic.head.bias' ? bias(tensor) : tensor))
      },
      /critic\.head\.bias: got NaN in element 0/,
    ],
    ['is of another network', () => saveWeights(path, wide, numbers(wide)), /actor\.0\.weight: F32 of shape \[4,9\]/],
  ])('is refused, and no folder made, where the file %s', async (_, make, message) => {
    await make()
    const starting = startRun(await smallRun(`weights=${path}`), join(folder, 'run'))
    await expect(starting).rejects.toThrow(InputError)
    await expect(starting).rejects.toThrow(message)
    expect(await readdir(folder)).not.toContain('run')
  })
  const wide = mlp({ hidden: [9] }).build(observations, discrete(2))
})
