/** Runs that are broken on purpose, and healthy ones: what `colonnade diagnose` says of each. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { diagnose, openDashboard } from '../../src/entries/loggers.ts'
import { configureRun, startRun } from '../../src/index.ts'
import { inProcess } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf, thorough } from '../support/tiers.ts'

/** Trains a run with these settings, and returns its folder. */
async function trained(environment: string, given: Readonly<Record<string, string>>): Promise<string> {
  const kept = environment.includes('text') || environment.endsWith('.mjs') ? 'trajectories' : 'rollouts'
  const folder = join(await temporaryFolder(), 'run')
  await (await startRun(await configureRun(environment, { [kept]: 'none', ...given }), folder)).train()
  return folder
}

/** The usual updates of text/reverse, fewer and smaller. */
const text = { 'rl.updates': '40', 'rl.groupsPerUpdate': '32', 'rl.groupSize': '8' }

const BROKEN: readonly (readonly [string, Record<string, string>, readonly string[]])[] = [
  ['CartPole-v1', { 'ppo.learningRate': '0.2' }, ['entropy', 'kl', 'returns']],
  ['CartPole-v1', { 'ppo.clipCoef': '0.0001' }, ['kl', 'clip', 'returns']],
  ['CartPole-v1', { 'ppo.entropyCoef': '10' }, ['entropy', 'kl', 'returns']],
  ['CartPole-v1', { 'ppo.learningRate': '2e-7' }, ['kl', 'values', 'returns']],
  ['CartPole-v1', { 'ppo.valueCoef': '0' }, ['values']],
  ['CartPole-v1', { 'ppo.learningRate': '0.02', 'ppo.updateEpochs': '100' }, ['kl']],
  ['Pendulum-v1', { 'ppo.learningRate': '0.15' }, ['entropy', 'kl', 'clip']],
  ['Pendulum-v1', { 'ppo.clipCoef': '0.0001' }, ['kl', 'clip', 'returns']],
  ['Pendulum-v1', { 'ppo.entropyCoef': '1' }, ['entropy']],
  ['Pendulum-v1', { 'ppo.learningRate': '1e-7' }, ['kl', 'values', 'returns']],
  ['Pendulum-v1', { 'ppo.valueCoef': '0' }, ['values']],
  ['text/reverse', { ...text, 'rl.learningRate': '0.1' }, ['entropy', 'groups', 'returns']],
  ['text/reverse', { ...text, 'rl.temperature': '0.01' }, ['groups']],
  [
    'text/reverse',
    { ...text, 'environment.minLength': '1', 'loss.entropyCoef': '5' },
    ['entropy', 'truncation', 'returns'],
  ],
]

const HEALTHY: readonly (readonly [string, Record<string, string>])[] = [
  ['CartPole-v1', {}],
  ['Pendulum-v1', {}],
  ['text/reverse', { 'rl.updates': '100' }],
  ['text/copy', { 'rl.updates': '100' }],
  ['text/arithmetic-1', { 'rl.updates': '100' }],
  ['text/guess-number', { 'rl.updates': '100' }],
  ['CartPole-v1', { algorithm: 'a2c' }],
  ['CartPole-v1', { algorithm: 'dqn' }],
  ['Pendulum-v1', { algorithm: 'sac' }],
  ['Acrobot-v1', {}],
  ['Blackjack-v1', {}],
  ['CliffWalking-v1', {}],
  ['EmptyRoom-v0', {}],
  ['FrozenLake-v1', {}],
  ['MountainCar-v0', {}],
  ['MountainCarContinuous-v0', {}],
  ['Taxi-v3', {}],
]

/** Under load a training of a language model takes minutes. */
const LONG = 900_000

/** The rows, each with every seed. */
function withSeeds<Row extends readonly [string, ...unknown[]]>(rows: readonly Row[], numSeeds: number) {
  return rows.flatMap((row) => {
    const count = row[0].startsWith('text/') ? 1 : numSeeds
    return Array.from({ length: count }, (_, i) => ({ row, name: row[0], given: row[1], seed: String(i + 1) }))
  })
}

describe('diagnose', () => {
  test.each(rowsOf(withSeeds(BROKEN, 2)))(
    'finds what is wrong with $name and $given, seed $seed',
    async ({ row: [environment, given, wanted], seed }) => {
      const { findings } = await diagnose(await trained(environment, { seed, ...given }))
      expect(findings.map(({ check }) => check)).toEqual(expect.arrayContaining([...wanted]))
      if (environment.startsWith('text/')) return
      // The setting that was broken is the first to change, of one of the findings.
      const first = findings.map(({ changes }) => changes[0]?.key)
      expect(Object.keys(given).some((key) => first.includes(key))).toBe(true)
    },
    LONG,
  )

  test.each(rowsOf(withSeeds(HEALTHY, 2)))(
    'finds nothing wrong with $name and $given, seed $seed',
    async ({ row: [environment, given], seed }) => {
      expect((await diagnose(await trained(environment, { seed, ...given }))).findings).toEqual([])
    },
    LONG,
  )

  thorough('a run whose broken setting is changed as it says is healthy', async () => {
    const broken: Record<string, string>[] = [
      { 'ppo.learningRate': '0.2' },
      { 'ppo.clipCoef': '0.0001' },
      { 'ppo.entropyCoef': '10' },
      { 'ppo.learningRate': '2e-7' },
      { 'ppo.valueCoef': '0' },
    ]
    for (const given of broken) {
      const settings = { ...given }
      for (let round = 0; round < 4; round++) {
        const [finding] = (await diagnose(await trained('CartPole-v1', settings))).findings
        if (finding === undefined) break
        const [change] = finding.changes
        settings[change!.key] = change!.to
      }
      const { findings } = await diagnose(await trained('CartPole-v1', settings))
      expect([settings, findings]).toEqual([settings, []])
    }
  })

  thorough('names the part of a reward that is learned at the expense of another', async () => {
    const entry = new URL('../../dist/src/index.js', import.meta.url).href
    const module = join(await temporaryFolder(), 'greedy.mjs')
    await writeFile(
      module,
      `import { defineTextEnvironment } from '${entry}'
export const greedy = defineTextEnvironment({
  id: 'greedy', module: import.meta.url, settings: {},
  make: () => ({
    numExamples: 100, maxTokens: 6, alphabet: 'ab=',
    example: (index) => ({ prompt: index % 2 ? 'a=' : 'b=', answer: index % 2 ? 'a' : 'b' }),
    respond({ completion, example }) {
      const [exact, long] = [completion === example.answer ? 1 : 0, completion.length / 6]
      return { reward: 0.1 * exact + long, components: { exact, long } }
    },
  }),
})`,
    )
    const { findings } = await diagnose(await trained(module, { mode: 'sft+rl', 'sft.updates': '60', ...text }))
    const finding = findings.find(({ check }) => check === 'components')
    expect(finding?.problem).toBe('the policy learns long at the expense of exact')
    expect(finding!.evidence.map(({ metric }) => metric)).toEqual(['components/long', 'components/exact'])
  })

  test('by the command line and the page, with a check of one’s own', async () => {
    const folder = await trained('CartPole-v1', { 'ppo.learningRate': '0.2', totalSteps: '20000' })
    const entry = new URL('../../dist/src/entries/loggers.js', import.meta.url).href
    await writeFile(
      join(folder, '..', 'own.mjs'),
      `import { defineRunCheck } from '${entry}'
export const own = defineRunCheck({ id: 'own', description: 'anything', metrics: ['steps'],
  look: (run) => ({ problem: 'it is mine', evidence: [{ ...run.stretches('steps')[0], expected: 'less' }], changes: [] }) })`,
    )
    const told = await inProcess(['diagnose', 'run', 'checks=./own.mjs'], join(folder, '..'))
    expect(told.code).toBe(1)
    expect(told.stdout).toMatch(
      /^run: 20 updates of ppo on CartPole-v1, 6 of 10 checks made, \d found\nown: it is mine\n {2}steps 1540 in updates 1 to 2; expected less\nentropy: /,
    )
    expect(told.stdout).toContain('  try ppo.learningRate=0.02, which was 0.2\n')
    expect(told.stdout).toContain('not checked: groups, since the run has no fracRewardZeroStd')
    const { findings } = await diagnose(folder)
    const page = await openDashboard({ folder, port: 0 })
    try {
      await fetch(`${page.url}/api/runs`)
      const answer = await (await fetch(`${page.url}/api/diagnosis?run=run`)).json()
      expect(answer.findings).toEqual(JSON.parse(JSON.stringify(findings)))
    } finally {
      await page.close()
    }
    await expect(diagnose(join(folder, 'nowhere'))).rejects.toThrow('nowhere: got no such folder')
  })
})
