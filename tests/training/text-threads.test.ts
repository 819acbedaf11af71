import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they share must be made by the same ones here.
import {
  createTextTrainer,
  createWorld,
  languageModel,
  rl,
  sft,
  type TextTrainer,
  textEnvironmentFactory,
} from '../../dist/src/index.js'
import { temporaryFolder } from '../support/temporary.ts'

const reverse = textEnvironmentFactory('text/reverse')
const small = { width: 16, layers: 2, heads: 2 }

interface Options {
  readonly model?: object
  readonly settings?: Parameters<typeof rl>[0]
  readonly numLanes?: number
  readonly steps?: number
  readonly kernels?: 'plain' | 'simd'
}

async function trainerOf(
  threads: number,
  { model = small, settings = {}, numLanes = 13, steps = 3, kernels }: Options,
): Promise<TextTrainer> {
  const algorithm = rl({ groupsPerUpdate: 8, groupSize: 6, updates: 3, ...settings })
  const { groupSize, temperature, topK, topP, minP } = algorithm.settings
  const world = await createWorld({
    environment: reverse({ maxLength: 6 } as never),
    policy: languageModel(model as never),
    numLanes,
    seed: 3,
    groupSize,
    sampling: { temperature, topK, topP, minP },
    ...(kernels === undefined ? {} : { kernels }),
  })
  return createTextTrainer(world, { sft: sft({ steps, batchSize: 40 }), rl: algorithm }, { threads })
}

const sha = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

/** SHA-256 of every saved column. */
function bits(trainer: TextTrainer): Record<string, string> {
  return Object.fromEntries(
    trainer.world
      .columns()
      .filter(({ planned }) => planned.saved)
      .map(({ planned, column: { buffer, byteOffset, byteLength } }) => [
        planned.name,
        sha(Uint8Array.from(new Uint8Array(buffer, byteOffset, byteLength))),
      ]),
  )
}

/** Figures without what a clock has a part in. */
function untimed(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (key, each) => (/seconds?$/i.test(key) ? undefined : each)))
}

/** Trains on to the end; returns figures, the Arrow files of the updates, and the saved columns. */
async function outcome(trainer: TextTrainer, folder: string) {
  const metrics: unknown[] = []
  const tables: string[] = []
  for await (const each of trainer.supervise()) metrics.push(untimed(each))
  for await (const each of trainer.updates()) {
    metrics.push(untimed(each))
    const path = join(folder, `${each.step}.arrow`)
    await trainer.writeTrajectories(path)
    tables.push(sha(await readFile(path)))
  }
  const result = { metrics, tables, bits: bits(trainer) }
  trainer.close()
  return result
}

async function expectSame(options: Options, teams: readonly number[]) {
  const folder = await temporaryFolder()
  const alone = await outcome(await trainerOf(1, options), folder)
  for (const threads of teams) {
    expect(await outcome(await trainerOf(threads, options), folder), `${threads} threads`).toEqual(alone)
  }
  return alone
}

describe('same bits for any number of threads', () => {
  test.each<[string, Options]>([
    ['of the whole model', {}],
    [
      'with plain kernels, two epochs and a correction',
      { kernels: 'plain', settings: { updateEpochs: 2, lossSettings: { correction: 'token-truncate' } } },
    ],
    [
      'of an adapter with dropout, against a reference',
      { model: { ...small, loraRank: 4, loraDropout: 0.1 }, settings: { lossSettings: { klCoef: 0.1 } } },
    ],
    ['with a critic', { model: { ...small, critic: true }, settings: { loss: 'ppo' } }],
    ['where filters leave tokens out', { settings: { topK: 8, topP: 0.95 } }],
  ])('%s', async (_, options) => {
    const { metrics, tables } = await expectSame(options, [2, 3, 5])
    expect(metrics).toHaveLength(6)
    expect(new Set(tables).size).toBe(3)
  })
})
