/** Checks of recorded runs, by figures written by hand: one side of each bound, and the other. */
import { describe, expect, test } from 'vitest'
import { defineRunCheck } from '../../src/entries/loggers.ts'
import { diagnosisOf, runChecks } from '../../src/telemetry/diagnose/diagnose.ts'
import { inProcess } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** 16 updates; each figure goes from its first to its last value in a straight line. */
function linesOf(figures: Readonly<Record<string, readonly [number, number] | object>>, extra: object = {}) {
  return Array.from({ length: 16 }, (_, i) => {
    const at = ([from, to]: readonly [number, number]) => from + ((to - from) * i) / 15
    const values = Object.entries(figures).map(([name, ends]) => [
      name,
      Array.isArray(ends)
        ? at(ends as unknown as [number, number])
        : Object.fromEntries(Object.entries(ends).map(([part, each]) => [part, at(each)])),
    ])
    return { update: i + 1, step: i + 1, ...Object.fromEntries(values), ...extra }
  })
}

const ppoConfig = (parameters: object = {}, environment: object = { id: 'CartPole-v1', parameters: {} }) => ({
  environment,
  policy: { id: 'mlp', parameters: {} },
  algorithm: {
    id: 'ppo',
    parameters: { learningRate: 0.01, entropyCoef: 0, clipCoef: 0.2, targetKl: null, valueCoef: 0.5, ...parameters },
  },
  settings: { weights: '', from: '' },
})
const textConfig = (parameters: object = {}, lossSettings: object = {}, folder = '') => ({
  environment: { id: 'text/reverse', parameters: {} },
  policy: { id: 'languageModel', parameters: { folder } },
  sft: null,
  rl: {
    id: 'rl',
    parameters: { loss: 'grpo', learningRate: 0.001, temperature: 1, groupSize: 8, ...parameters, lossSettings },
  },
  settings: {},
})

const learns = { episodeReturn: [20, 300] as const }
const flat = { episodeReturn: [20, 22] as const }
const namesOf = (...given: Parameters<typeof diagnosisOf>) => diagnosisOf(...given).findings.map(({ check }) => check)
const found = (check: string, ...given: Parameters<typeof diagnosisOf>) =>
  diagnosisOf(...given).findings.find((each) => each.check === check)

describe('a check finds', () => {
  test.each([
    ['entropy', { ...flat, entropy: [0.69, 0.001] }, {}, 'stopped exploring', ['ppo.learningRate', 'ppo.entropyCoef']],
    ['entropy', { ...flat, entropy: [0.69, 0.69] }, { entropyCoef: 1 }, 'stays as random', ['ppo.entropyCoef']],
    ['entropy', { ...learns, entropy: [1.4, 3] }, { entropyCoef: 1 }, 'ever more random', ['ppo.entropyCoef']],
    ['kl', { ...learns, approxKl: [0.01, 0.2] }, {}, 'too much', ['ppo.learningRate', 'ppo.targetKl']],
    ['kl', { ...flat, approxKl: [1e-6, 1e-6] }, {}, 'hardly change', ['ppo.learningRate']],
    ['kl', { ...flat, approxKl: [1e-6, 1e-6] }, { entropyCoef: 9 }, 'hardly change', ['ppo.entropyCoef']],
    [
      'kl',
      { ...flat, approxKl: [1e-6, 1e-6], clipFraction: [0.9, 0.8] },
      { clipCoef: 1e-4 },
      'hardly change',
      ['ppo.clipCoef'],
    ],
    [
      'clip',
      { ...flat, approxKl: [1e-6, 1e-6], clipFraction: [0.9, 0.9] },
      { clipCoef: 1e-4 },
      'too narrow',
      ['ppo.clipCoef'],
    ],
    ['clip', { ...learns, approxKl: [0.05, 0.05], clipFraction: [0.1, 0.5] }, {}, 'is clipped', ['ppo.learningRate']],
    ['values', { ...learns, explainedVariance: [-0.1, 0.03] }, {}, 'explains nothing', ['ppo.learningRate']],
    ['values', { ...learns, explainedVariance: [0, 0] }, { valueCoef: 0 }, 'explains nothing', ['ppo.valueCoef']],
    ['returns', flat, {}, 'does not rise', []],
    ['returns', { episodeReturn: [0, 0] }, {}, 'always the same', []],
  ] as const)('%s in %j with %j: %s', (check, figures, parameters, problem, keys) => {
    const finding = found(check, ppoConfig(parameters), linesOf(figures))!
    expect(finding.problem).toContain(problem)
    expect(finding.changes.map(({ key }) => key)).toEqual(keys)
    for (const { first, last, mean } of finding.evidence) {
      expect([first >= 1, last <= 16, first < last, Number.isFinite(mean)]).toEqual([true, true, true, true])
    }
  })

  test.each([
    ['groups', { reward: [0.2, 0.2], fracRewardZeroStd: [0.3, 1] }, {}, {}, ['rl.groupSize']],
    [
      'groups',
      { reward: [0.2, 0.2], fracRewardZeroStd: [1, 1] },
      { temperature: 0.1 },
      {},
      ['rl.temperature', 'rl.groupSize'],
    ],
    ['truncation', { reward: [0.2, 0.6], clippedRatio: [0, 0.4] }, {}, { maxLength: 8 }, []],
    [
      'length',
      { reward: [0.2, 0.2], completionLength: [4, 9] },
      {},
      { overlongCache: null },
      ['rl.loss', 'loss.overlongCache'],
    ],
    ['components', { reward: [0.2, 0.6], components: { long: [0, 0.9], exact: [0.5, 0.1] } }, {}, {}, []],
    ['returns', { reward: [0.4, 0.41] }, {}, {}, []],
  ] as const)('%s in %j', (check, figures, parameters, loss, keys) => {
    const lines = linesOf(figures, { phase: 'rl', groupRewards: [0, 1] })
    const finding = found(check, textConfig(parameters, loss), lines)!
    expect(finding.changes.map(({ key }) => key)).toEqual(keys)
  })

  test('a return that was lost again, by more than its noise', () => {
    const lines = linesOf({ episodeReturn: [20, 300] })
    const lost = [
      ...lines,
      ...linesOf({ episodeReturn: [290, 60] }).map((line) => ({ ...line, update: line.update + 16 })),
    ]
    const finding = found('returns', ppoConfig(), lost)!
    expect(finding.problem).toContain('lost again')
    const [best, last] = finding.evidence
    expect([best!.first, best!.last, last!.first, last!.last]).toEqual([13, 16, 29, 32])
    expect(best!.mean).toBeCloseTo(20 + (280 * 13.5) / 15)
    expect(last!.std).toBeCloseTo((230 / 15) * Math.sqrt(1.25))
    const noise = lines.map((line, i) => ({
      ...line,
      episodeReturn: i < 2 ? 10 : i < 14 ? (i % 2) * 40 : (i % 2) * 24,
    }))
    expect(namesOf(ppoConfig({}, { id: './own.mjs' }), noise)).toEqual([])
  })
})

describe('no alarm', () => {
  test.each([
    [
      {
        ...learns,
        entropy: [0.69, 0.03],
        approxKl: [0.01, 0.0001],
        clipFraction: [0.2, 0],
        explainedVariance: [0.8, -1],
      },
      {},
    ],
    [{ episodeReturn: [480, 480], entropy: [0.3, 0], approxKl: [1e-6, 0], clipFraction: [0, 0] }, {}],
    [{ ...learns, entropy: [0.69, 0.69], approxKl: [0.02, 0.08] }, { entropyCoef: 1 }],
  ] as const)('of %j', (figures, parameters) => {
    expect(namesOf(ppoConfig(parameters), linesOf(figures))).toEqual([])
  })

  test('of conversations that are as good as their best group', () => {
    const figures = {
      reward: [0.93, 0.95],
      fracRewardZeroStd: [0.9, 1],
      entropy: [0.5, 0.001],
      completionLength: [4, 9],
    }
    expect(namesOf(textConfig(), linesOf(figures, { phase: 'rl', groupRewards: [0.2, 1] }))).toEqual([])
    expect(namesOf(textConfig(), linesOf(figures, { phase: 'rl', groupRewards: [0.2, 3] }))).toEqual([
      ...['entropy', 'groups', 'length', 'returns'],
    ])
  })

  test('of a flat return of a policy that began trained', () => {
    expect(namesOf({ ...ppoConfig(), settings: { weights: 'a.safetensors' } }, linesOf(flat))).toEqual([])
    const lines = linesOf({ reward: [0.4, 0.4] }, { phase: 'rl', groupRewards: [0, 1] })
    expect(namesOf(textConfig({}, {}, 'model'), lines)).toEqual([])
  })

  test('beyond what a run records: checks without their metrics, and of few updates, are not made', () => {
    const { checked, skipped } = diagnosisOf(ppoConfig(), linesOf({ ...learns, approxKl: [0.01, 0.01] }))
    expect(checked).toEqual(['kl', 'returns'])
    expect(skipped.clip).toBe('the run has no clipFraction')
    expect([...checked, ...Object.keys(skipped)].toSorted()).toEqual(runChecks.map(({ id }) => id).toSorted())
    const unknown = linesOf({ ...learns, clipFraction: [0.9, 0.5] }).map((line, i) => ({
      ...line,
      approxKl: i < 15 ? null : 0.01,
    }))
    expect(found('clip', ppoConfig(), unknown)!.evidence.map(({ metric }) => metric)).toEqual(['clipFraction'])
    const few = diagnosisOf(ppoConfig(), linesOf(flat).slice(0, 7))
    expect([few.checked, few.skipped.returns]).toEqual([[], '7 updates, and it needs 8'])
    const words = linesOf(learns, { entropy: 'none', components: { exact: 'none' } })
    expect(diagnosisOf(ppoConfig(), words).checked).toEqual(['returns'])
    const supervised = linesOf({ loss: [2, 1] }, { phase: 'sft' })
    expect(diagnosisOf(textConfig(), supervised)).toMatchObject({ updates: 0, checked: [], findings: [] })
  })
})

test('a check of one’s own comes first, and a wrong one is refused', () => {
  const slow = defineRunCheck({
    id: 'slow',
    description: 'fewer than 1000 steps a second',
    metrics: ['stepsPerSecond'],
    look(run) {
      const last = run.stretches('stepsPerSecond').at(-1)!
      if (last.mean >= 1000) return null
      const { key, value } = run.setting('numSteps')!
      return { problem: 'slow', evidence: [{ ...last, expected: '1000' }], changes: [{ key, value, to: '64' }] }
    },
  })
  const config = ppoConfig({ numSteps: 8 })
  const [first] = diagnosisOf(config, linesOf({ ...flat, stepsPerSecond: [90, 90] }), [slow]).findings
  expect(first).toMatchObject({ check: 'slow', changes: [{ key: 'ppo.numSteps', value: 8, to: '64' }] })
  expect(namesOf(config, linesOf({ ...learns, stepsPerSecond: [2e3, 2e3] }), [slow])).toEqual([])
  expect(() => defineRunCheck({ id: 'slow' } as never)).toThrow('slow description: got undefined')
  for (const found of [undefined, { problem: 'slow' }, { problem: 'slow', evidence: [], changes: [] }]) {
    const vague = defineRunCheck({ ...slow, id: 'vague', metrics: [], look: () => found as never })
    expect(() => diagnosisOf(config, linesOf(flat), [vague])).toThrow('vague look: got')
  }
})

test('a run that is too short is told to be one of which nothing is known, each reason once', async () => {
  const folder = await temporaryFolder()
  await inProcess(
    ['train', 'CartPole-v1', 'out=run', 'numLanes=2', 'ppo.numSteps=8', 'totalSteps=16', '--quiet'],
    folder,
  )
  const { code, stdout } = await inProcess(['diagnose', 'run'], folder)
  expect(code).toBe(1)
  expect(stdout).toMatch(
    /^run: 1 updates of ppo on CartPole-v1, 0 of 9 checks made, so nothing is known\nnot checked: .*, since 1 updates[^\n]*\n$/,
  )
})

test('a check of yours with the id of another is refused', () => {
  const mine = defineRunCheck({ id: runChecks[0]!.id, description: 'mine', metrics: [], look: () => null })
  const expected = `checks: got two with the id ${mine.id}, expected ids that differ, also from the built-in ones`
  expect(() => diagnosisOf(ppoConfig(), linesOf({ episodeReturn: [0, 1] }), [mine])).toThrow(expected)
  const own = defineRunCheck({ id: 'own', description: 'mine', metrics: [], look: () => null })
  expect(() => diagnosisOf(ppoConfig(), linesOf({ episodeReturn: [0, 1] }), [own, own])).toThrow('two with the id own')
})
