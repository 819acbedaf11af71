/**
 * Runs that begin in a page, leave it as a zip, and go on by `colonnade resume`: they have the bits of one that was never interrupted.
 * `tests/outside/bundlers.test.ts` keeps them in a browser's private file system.
 */
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { configureRun, startRun } from '../../src/index.ts'
import { readMetrics } from '../../src/telemetry/metrics-lines.ts'
import { listCheckpoints, readCheckpoint } from '../../src/training/folder/checkpoint.ts'
import { inProcess } from '../support/command.ts'
import { link, pageOf } from '../support/linked-page.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

const PROGRAM = `
import { configureRun, resumeRun, startRun, unzipFolder, zipFolder } from 'colonnade'
async function train(run, updates) {
  const stop = new AbortController()
  const listeners = { onUpdate: () => run.trainer.update + (run.trainer.sftSteps ?? 0) >= updates && stop.abort(), signal: stop.signal }
  return run.train(listeners)
}
export async function begin(environment, given, updates) {
  const run = await startRun(await configureRun(environment, given), 'runs/here')
  const { status, kernels, node } = await train(run, updates)
  return { status, kernels, node, zip: await zipFolder('runs/here') }
}
/** The zip of a run that another page began. */
export async function goOn(zip, updates) {
  await unzipFolder(zip, 'runs/there')
  const { status } = await train(await resumeRun('runs/there'), updates)
  return { status, zip: await zipFolder('runs/there') }
}
export const configure = (environment, given) => configureRun(environment, given).then(() => 'accepted', ({ message }) => message)
`

interface Begun {
  readonly status: string
  readonly kernels: string
  readonly node: string
  readonly zip: Uint8Array
}
interface Program {
  begin(environment: string, given: object, updates: number): Promise<Begun>
  goOn(zip: Uint8Array, updates: number): Promise<Begun>
  configure(environment: string, given: object): Promise<string>
}

const SMALL = { numLanes: '8', checkpointEvery: '1', 'ppo.numSteps': '32' }
const OF_REPLAY = { numLanes: '8', totalSteps: '1600' }

describe('a run that a page begins', () => {
  let script = ''
  const program = () => pageOf(script, false) as Program

  beforeAll(async () => {
    const [linked] = await link(PROGRAM, 'iife')
    script = linked!.code
  })

  const rows = [
    ['CartPole-v1', { ...SMALL, totalSteps: '2048', evaluateEvery: '2' }],
    ['Breakout-MinAtar', { ...SMALL, policy: 'convolutional', totalSteps: '2048' }],
    ['CartPole-v1', { ...OF_REPLAY, algorithm: 'dqn', 'dqn.learningStarts': '400' }],
    ['Pendulum-v1', { ...OF_REPLAY, algorithm: 'sac', 'sac.learningStarts': '400' }],
    ['text/reverse', { 'sft.updates': '4', 'rl.updates': '4', numLanes: '16', 'rl.groupsPerUpdate': '4' }],
  ] as const
  test.each(rowsOf(rows))('%s, by %o, goes on in another page and by colonnade resume', async (environment, given) => {
    const folder = await temporaryFolder()
    const relaxed = { ...given, kernels: 'relaxed' }
    const whole = await startRun(await configureRun(environment as string, relaxed), join(folder, 'whole'))
    await whole.train()

    const first = await program().begin(environment, given, 2)
    expect(first).toMatchObject({ status: 'interrupted', kernels: 'relaxed', node: 'page' })
    const second = await program().goOn(first.zip, 5)
    expect(second.status).toBe('interrupted')
    writeFileSync(join(folder, 'here.zip'), second.zip)
    const wrong = await inProcess(['resume', join(folder, 'here.zip'), 'updates=9'])
    expect([wrong.code, wrong.stderr, existsSync(join(folder, 'here'))]).toEqual([
      ...[1, expect.stringContaining('"updates"'), false],
    ])
    const { code, stderr } = await inProcess(['resume', join(folder, 'here.zip'), '--quiet'])
    expect([code, stderr]).toEqual([0, ''])
    const again = await inProcess(['resume', join(folder, 'here.zip')])
    expect([again.code, again.stderr]).toEqual([
      1,
      expect.stringContaining(`\`colonnade resume ${join(folder, 'here')}\` continues`),
    ])

    const [last] = (await listCheckpoints(join(folder, 'whole'))).slice(-1)
    const [ours, theirs] = await Promise.all(['whole', 'here'].map((name) => readCheckpoint(join(folder, name), last)))
    expect(theirs!.manifest.files).toEqual(ours!.manifest.files)
    const timeless = async (name: string) =>
      (await readMetrics(join(folder, name))).map((line) => withoutTimes(line as Record<string, unknown>))
    expect(await timeless('here')).toEqual(await timeless('whole'))
  })

  test('refuses what a page lacks, before anything is written', async () => {
    const { configure } = program()
    expect(await configure('CartPole-v1', { loggers: 'csv' })).toMatch(/^logger: got .*csv/)
    expect(await configure('./mine.mjs', {})).toMatch(/^module: got \.\/mine\.mjs, a path, expected a name/)
    expect(await configure('text/reverse', { engine: 'vllm:http://127.0.0.1:1' })).toMatch(/^engine: got .*vllm/)
    expect(await configure('CartPole-v1', {})).toBe('accepted')
  })
})

/** A line of metrics without what depends on the clock. */
function withoutTimes(line: Record<string, unknown>): unknown {
  return Object.fromEntries(Object.entries(line).filter(([key]) => !/seconds|PerSecond|share|time/i.test(key)))
}
