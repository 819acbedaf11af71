/**
 * Threads of a page: Web Workers over shared memory where the page is isolated, with the bits of one thread and of Node, and one thread
 * elsewhere, of which `doctor()` says why. `tests/outside/bundlers.test.ts` asks a browser.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import * as colonnade from '../../src/index.ts'
import { countWorkers, link, pageOf, root } from '../support/linked-page.ts'
import { rowsOf } from '../support/tiers.ts'

/** What page and Node do. */
const TRAIN = `
async function train(colonnade, name, threads, kernels) {
  const { createTrainer, createWorld, mlp, ppo } = colonnade
  const options = { environment: colonnade[name](), policy: mlp({ hidden: [32] }), numLanes: 32, seed: 5, kernels }
  const world = await createWorld(options)
  const trainer = createTrainer(world, ppo({ numSteps: 64, numMinibatches: 2 }), { threads })
  for await (const _ of trainer.updates({ totalSteps: 4 * 64 * 32 }));
  const weights = [...world.cohort().weights]
  trainer.close()
  return weights
}
`
const PROGRAM = `
import { breakout, cartPole, createTrainer, createWorld, defineEnvironment, doctor, mlp, pendulum, ppo } from 'colonnade'
import { languageModel, sft, textEnvironmentFactory } from 'colonnade/text'
${TRAIN}
export const trainHere = (name, threads) => train({ breakout, cartPole, createTrainer, createWorld, mlp, pendulum, ppo }, name, threads)
export const refusal = (name, threads) => trainHere(name, threads).then(() => null, ({ message }) => message)
export const examine = () => doctor().then((report) => JSON.parse(JSON.stringify(report)))
export async function talk(threads) {
  const options = { environment: textEnvironmentFactory('text/reverse')(), policy: languageModel({ width: 16, layers: 1 }), numLanes: 4 }
  const world = await createWorld(options)
  try {
    createTrainer(world, sft({ updates: 1 }), { threads })
    return null
  } catch ({ message }) {
    return message
  }
}
`

interface Program {
  trainHere(name: string, threads: number): Promise<number[]>
  refusal(name: string, threads: number): Promise<string | null>
  examine(): Promise<{
    threads: number
    why: string | null
    cores: number
    checks: { name: string; isThere: boolean }[]
  }>
  talk(threads: number): Promise<string | null>
}

describe('the threads of a page', () => {
  let script = ''
  beforeAll(async () => {
    const [linked] = await link(PROGRAM, 'iife')
    script = linked!.code
  })
  const program = (isIsolated: boolean, isWindow = false) => pageOf(script, isIsolated, isWindow) as Program

  const rows = [
    ['cartPole', 'a window', true],
    ['cartPole', 'a worker', false],
    ['pendulum', 'a window', true],
    ['breakout', 'a worker', false],
  ] as const
  test.each(rowsOf(rows, 2))('two train %s in %s with the bits of Node', async (name, _, isWindow) => {
    const train = new Function(`${TRAIN}; return train`)() as (...given: unknown[]) => Promise<number[]>
    const expected = await train(colonnade, name, 2, 'relaxed')
    const { started, ended } = countWorkers()
    const weights = await program(true, isWindow).trainHere(name, 2)
    expect(weights.length).toBeGreaterThan(100)
    expect([...weights]).toEqual(expected)
    expect(countWorkers()).toEqual({ started: started + 1, ended: ended + 1 })
  })

  test('begin at the second try if the first one could not load what they run', async () => {
    const { refusal } = program(true)
    vi.spyOn(URL, 'createObjectURL').mockImplementationOnce(() => {
      throw new Error('there is no network')
    })
    expect(await refusal('cartPole', 2)).toMatch(/^worker 1 of 2 threads .* failed: /)
    expect(await refusal('cartPole', 2)).toBe(null)
  })

  test('run less than the 500 kB of which Vite warns, 145 kB compressed, with nothing of conversations', () => {
    const program = readFileSync(join(root, 'dist/page/base/threads/worker-program.js'))
    expect(program.byteLength).toBeLessThan(500_000)
    expect(gzipSync(program, { level: 9 }).byteLength).toBeLessThan(145_000)
  })

  test('are one where the page is not isolated, and the headers that it lacks are said', async () => {
    const { examine, refusal } = program(false)
    const { threads, why, cores } = await examine()
    expect([threads, cores]).toEqual([1, 2])
    expect(why).toMatch(/Cross-Origin-Opener-Policy: same-origin .*Cross-Origin-Embedder-Policy: require-corp/)
    expect(await refusal('cartPole', 2)).toMatch(
      /^threads: got 2, expected 1, since this page is not cross-origin isolated/,
    )
    expect(await refusal('cartPole', 1)).toBe(null)
  })

  test('are as many as the machine runs where it is, but one for conversations', async () => {
    const { examine, talk } = program(true)
    const { threads, why, checks } = await examine()
    expect([threads, why]).toEqual([2, null])
    expect(checks.slice(0, 5).map(({ isThere }) => isThere)).toEqual([true, true, true, true, true])
    expect(checks.slice(5).map(({ name, isThere }) => [name, isThere])).toEqual([
      ['WebGPU', false],
      ['private file system', false],
    ])
    expect(await talk(2)).toMatch(/^threads: got 2 for conversations in a page, expected 1/)
  })
})
