/** What a training plans is what it touches: part by part, and by the operating system's account. */
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { rl } from '../../../src/algorithms/tokens/rl.ts'
import { sft } from '../../../src/algorithms/tokens/sft.ts'
import { copy } from '../../../src/environments/tasks/sequences.ts'
import { createTrainer } from '../../../src/index.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { createWorld } from '../../../src/world/world.ts'
import { rowsOf, thorough } from '../../support/tiers.ts'

const PAGE = 4096

/** Bytes of a column's pages that are not all 0. */
function touched({ buffer, byteOffset, byteLength }: ArrayBufferView): number {
  const bytes = new Uint8Array(buffer, byteOffset, byteLength)
  let count = 0
  for (let at = 0; at < byteLength; at += PAGE) {
    const page = bytes.subarray(at, at + PAGE)
    if (page.some((byte) => byte !== 0)) count += page.length
  }
  return count
}

/** Parts of a plan, by the beginnings of their columns' names. */
const PARTS = [
  'weights',
  'quantized',
  'adapter',
  'learner.gradient',
  'learner.optimizer',
  'learner.packed',
  'engine.decoder',
]

describe('each part of a plan is touched', () => {
  const whole = { width: 128, layers: 3, heads: 4, context: 256, anyText: true }
  const settings: [string, object][] = [
    ['f32', {}],
    [
      'adapters on 8 bits, activations recomputed, a cache of 16 bits',
      { quantize: 8, loraRank: 16, checkpointing: true, cacheBits: 16 },
    ],
    ['f32, activations recomputed', { checkpointing: true }],
    ['adapters on f32', { loraRank: 16 }],
    ['adapters on 4 bits', { quantize: 4, loraRank: 16 }],
    ['a cache of 16 bits', { cacheBits: 16 }],
  ]

  test.each(rowsOf(settings, 2))('%s', async (_, given) => {
    const policy = languageModel({ ...whole, ...given } as never)
    const environment = copy({ maxLength: 124, minLength: 124 } as never)
    const world = await createWorld({ environment, policy, numLanes: 4, groupSize: 4, seed: 3, maxTokens: 130 })
    const trainer = createTrainer(world, [
      sft({ updates: 2, batchSize: 8, learningRate: 0.01 }), // The first step of an adapter leaves one half of it as it was.
      rl({ updates: 1, groupsPerUpdate: 1, groupSize: 4 }),
    ])
    for await (const _ of trainer.updates());
    const sums = new Map(PARTS.map((part) => [part, { planned: 0, touched: 0 }]))
    let rest = 0
    for (const { planned, column } of world.columns()) {
      const name = planned.name.slice(planned.name.indexOf('.') + 1)
      const part = PARTS.find((each) => name.startsWith(each))
      if (part === undefined) {
        rest += planned.bytes
        continue
      }
      sums.get(part)!.planned += planned.bytes
      sums.get(part)!.touched += touched(column)
    }
    const total = { planned: 0, touched: 0 }
    for (const [part, sum] of sums) {
      total.planned += sum.planned
      total.touched += sum.touched
      // Of a small decoder the workspace of products, whose size is constant, is not all needed.
      if (sum.planned > 0) expect([part, sum.touched / sum.planned > 0.8]).toEqual([part, true])
    }
    expect(total.touched / total.planned).toBeGreaterThan(0.9)
    expect(total.touched).toBeGreaterThan(0.85 * world.arena.bytes)
    expect(world.arena.bytes).toBeLessThan(1.01 * (total.planned + rest) + 65_536)
  })
})

describe.runIf(existsSync('/proc/self/status'))('by the operating system’s account', () => {
  const script = new URL('../../support/resident.mjs', import.meta.url).pathname
  const train = (given: object): { planned: number; resident: number } =>
    JSON.parse(execFileSync(process.execPath, [script, JSON.stringify(given)], { encoding: 'utf8' }))
  const large = { width: 512, layers: 12, heads: 8, context: 1024 }
  const settings: [string, object][] = [
    ['f32', large],
    ['activations recomputed', { ...large, checkpointing: true }],
    ['adapters, a cache of 16 bits', { ...large, loraRank: 16, cacheBits: 16 }],
  ]

  // In the fast tier the test above has the same parts, of small models.
  thorough.each(settings)('a training has within 10 %% of its plan: %s', { timeout: 900_000 }, (_, parameters) => {
    const { planned, resident } = train({ lanes: 4, length: 510, parameters })
    console.log(`planned ${planned}, resident ${resident}: ${resident / planned}`)
    expect(resident / planned).toBeGreaterThan(0.9)
    expect(resident / planned).toBeLessThan(1.1)
  })
})
