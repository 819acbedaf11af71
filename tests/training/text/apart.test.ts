/**
 * Columns beyond what WebAssembly addresses, in a buffer beside it: trainings leave the same bits there. The limit is
 * lowered, so that a small model's columns lie apart.
 */
import { afterEach, describe, expect, test } from 'vitest'
import { rl } from '../../../src/algorithms/tokens/rl.ts'
import { sft } from '../../../src/algorithms/tokens/sft.ts'
import { addressable } from '../../../src/components/arena.ts'
import { reverse } from '../../../src/environments/tasks/sequences.ts'
import { createTrainer } from '../../../src/index.ts'
import { kernelBuilds } from '../../../src/kernels/bind.ts'
import type { KernelBuild } from '../../../src/kernels/kernels.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { createWorld } from '../../../src/world/world.ts'
import { rowsOf } from '../../support/tiers.ts'

const limit = addressable.bytes
afterEach(() => {
  addressable.bytes = limit
})

/** Trains by answers, then by rewards; returns what the world's columns hold that a checkpoint keeps. */
async function trained(bytes: number, kernels: KernelBuild, threads: number, model: object) {
  addressable.bytes = bytes
  const policy = languageModel({ width: 64, layers: 2, heads: 4, ...model } as never)
  const world = await createWorld({ environment: reverse(), policy, numLanes: 8, groupSize: 4, seed: 3, kernels })
  const phases = [
    sft({ updates: 1, batchSize: 8 }),
    rl({ updates: 1, groupsPerUpdate: 2, groupSize: 4, maxStaleness: 0 }),
  ]
  const trainer = createTrainer(world, phases, { threads })
  for await (const _ of trainer.updates());
  const saved = world.columns().filter(({ planned }) => planned.saved)
  const held = saved.map(({ planned, column }) => [planned.name, [...column]])
  const { apart } = world.arena
  trainer.close()
  return { apart: apart?.byteLength ?? 0, held }
}

const MODELS: Record<string, object> = {
  'a whole model': {},
  'its activations recomputed, with a cache of 16 bits': { checkpointing: true, cacheBits: 16 },
  'adapters on 8 bits': { quantize: 8, loraRank: 4 },
  'adapters on 4 bits': { quantize: 4, loraRank: 4 },
}

describe.each(kernelBuilds().filter((build) => build === 'native' || build === 'plain'))('apart, %s', (kernels) => {
  // In the fast tier the whole model, and of native kernels nothing else: `tests/kernels/native.test.ts` has their places.
  test.each(rowsOf(Object.keys(MODELS), 1))('%s is trained with the same bits', async (name) => {
    const near = await trained(limit, kernels, 1, MODELS[name]!)
    const far = await trained(4 * 2 ** 20, kernels, 2, MODELS[name]!)
    expect(near.apart).toBe(0)
    expect(far.apart).toBeGreaterThan(2 ** 20)
    expect(far.held).toEqual(near.held)
  })
})
