/** What a run says and does when a thread, or a reply, is stuck. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeEach, describe, expect, test } from 'vitest'
import { listCheckpoints } from '../../src/training/folder/checkpoint.ts'
import { MAIN, SOURCE, start } from '../support/command.ts'
import { traces } from '../support/faults.ts'
import { temporaryFolder } from '../support/temporary.ts'

const [world, text, answer] = ['stuck.mjs', 'stuck-text.mjs', 'stuck-answer.ts'].map((name) =>
  fileURLToPath(new URL(`../support/${name}`, import.meta.url)),
) as [string, string, string]
/** Four updates of 16 steps a lane; the 41st is in the third. */
const small = [
  'totalSteps=512',
  'numLanes=8',
  'mlp.hidden=4',
  'ppo.numSteps=16',
  'ppo.numMinibatches=1',
  'stallSeconds=3',
]

let here: string
let stuck: string
beforeEach(async () => {
  here = await temporaryFolder()
  stuck = join(here, 'stuck')
  writeFileSync(stuck, '')
})

function launch(words: readonly string[], thread: number) {
  const env = { ...process.env, STUCK: stuck, STUCK_THREAD: String(thread) }
  return start(process.execPath, [MAIN, ...words], { cwd: here, env })
}

/** Goes on with the run, now that nothing is stuck; it ends as one that never was. */
async function expectSameBits(run: string, environment: string, words: readonly string[]): Promise<void> {
  rmSync(stuck)
  const trusted = environment.endsWith('.mjs') ? [`trust=${environment}`] : []
  const resumed = await launch(['resume', run, ...trusted], 0).ended
  expect(resumed.code, resumed.stderr).toBe(0)
  const whole = await launch(['train', environment, 'out=whole', ...words], 0).ended
  expect(whole.code, whole.stderr).toBe(0)
  // The number of a checkpoint of conversations counts ticks, which depend on when replies come.
  const kept = (folder: string) =>
    Object.entries(traces(join(here, folder))).filter(([name]) => /^(model|trajectories|rollouts)|curve/.test(name))
  expect(kept(run).length).toBeGreaterThan(1)
  expect(kept(run)).toEqual(kept('whole'))
}

const log = (run: string) => readFileSync(join(here, run, 'run.log'), 'utf8')

describe('a worker whose step does not return', () => {
  const words = [...small, 'threads=2']
  const said = /2 threads \(lanes 4–7 of mlp\): step has not returned for [3-9][\d.]* s \(since \d{4}-/

  test('ends the run with a checkpoint where that is asked', async () => {
    const { code, stderr } = await launch(['train', world, 'out=run', ...words, 'onStall=stop'], 1).ended
    expect(code).toBe(1)
    expect(stderr).toMatch(said)
    expect(log('run')).toMatch(said)
    expect(await listCheckpoints(join(here, 'run'))).toEqual([2])
    await expectSameBits('run', world, [...words, 'onStall=stop'])
  })

  test('is told, and one Ctrl-C ends the run with a checkpoint', async () => {
    const { process: child, ended, printed } = launch(['train', world, 'out=run', ...words], 1)
    await printed('step has not returned')
    child.kill('SIGINT')
    const { code, stdout, stderr } = await ended
    expect(code, stderr).toBe(130)
    expect(stdout).toContain('interrupted: 256 steps')
    expect(log('run')).toMatch(said)
    expect(await listCheckpoints(join(here, 'run'))).toEqual([2])
    await expectSameBits('run', world, words)
  })
})

test('a step of the caller’s own thread that takes long is told while it lasts, and the run goes on', async () => {
  const { ended, printed } = launch(['train', world, 'out=run', ...small, 'threads=1'], 0)
  await printed('step has not returned')
  expect(log('run')).toMatch(/1 threads \(lanes 0–7 of mlp\): step has not returned for/)
  rmSync(stuck)
  const { code, stdout } = await ended
  expect(code).toBe(0)
  expect(stdout).toContain('complete: 512 steps')
})

describe('an answer of a policy that never comes, on one thread', () => {
  const said =
    /1 threads \(lanes 0–7 of mlp\): infer of cohort mlp \(a promise\) has not returned for [1-9][\d.]* s \(since \d{4}-/
  const train = (onStall: string) => start(process.execPath, [...SOURCE, answer, join(here, 'run'), onStall])
  const keys = ['seed=1', ...small.filter((key) => !key.startsWith('stallSeconds')), 'threads=1', 'stallSeconds=1']

  test('ends the run with a checkpoint where that is asked, which says what it waited for', async () => {
    const { code, stderr } = await train('stop').ended
    expect(code).toBe(1)
    expect(stderr).toMatch(said)
    expect(log('run')).toMatch(said)
    expect(await listCheckpoints(join(here, 'run'))).toEqual([2])
    await expectSameBits('run', 'CartPole-v1', keys)
  })

  test('is told, and one Ctrl-C ends the run with a checkpoint', async () => {
    const { process: child, ended, printed } = train('continue')
    await printed('infer of cohort mlp')
    child.kill('SIGINT')
    const { code, stdout, stderr } = await ended
    expect(code, stderr).toBe(0)
    expect(stdout).toContain('interrupted: 256 steps')
    expect(log('run')).toMatch(said)
    expect(await listCheckpoints(join(here, 'run'))).toEqual([2])
  })
})

describe('a reply that never comes', () => {
  const words = [
    ...['languageModel.width=8', 'languageModel.layers=1', 'mode=rl', 'rl.updates=4', 'rl.groupSize=2'],
    ...['rl.groupsPerUpdate=2', 'numLanes=4', 'threads=1', 'replySeconds=1'],
  ]
  const said = /lane \d: respond of text\/stuck, asked at \d{4}-.+Z, has not answered for 1 s/

  test('is an unknown reward, and told', async () => {
    const { code, stderr } = await launch(['train', text, 'out=run', ...words], 0).ended
    expect(code, stderr).toBe(1) // Of the later updates no reward is known.
    expect(stderr).toMatch(said)
    expect(stderr).toContain('no reply within 1 s')
    expect(log('run')).toMatch(said)
  })

  test('ends the run with a checkpoint where that is asked, and is asked for again by the resumed one', async () => {
    const { code, stderr } = await launch(['train', text, 'out=run', ...words, 'onStall=stop'], 0).ended
    expect(code).toBe(1)
    expect(stderr).toMatch(said)
    expect(await listCheckpoints(join(here, 'run'))).toHaveLength(1)
    await expectSameBits('run', text, [...words, 'onStall=stop'])
  })
})
