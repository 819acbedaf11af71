/**
 * Every declared setting does something: changed from what it is to another value of its range, it changes the weights, the
 * metrics or the files of a small run, or is refused by name. A setting that acts only under another one gets that beside it
 * in a table; one that nobody thought of is found by the test itself.
 */
import { createHash } from 'node:crypto'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { Random } from '../../src/base/random.ts'
import type { Setting } from '../../src/base/settings.ts'
import { box } from '../../src/base/space.ts'
import { type EnvironmentId, environments } from '../../src/environments/registry.ts'
import { textEnvironments } from '../../src/environments/tasks/registry.ts'
import { policies, policyFactory } from '../../src/policies/registry.ts'
import type { TextEnvironmentId } from '../../src/training/run/conversation-run.ts'
import type { ConversationRunDefinition } from '../../src/training/run/definition.ts'
import { configureRun, type Run, runKeys, runTrainer, startRun } from '../../src/training/run/run.ts'
import { digits } from '../support/conversations.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { isThorough } from '../support/tiers.ts'

/** Those that act where threads collect while others learn. */
const AHEAD = Object.fromEntries(
  ['maxStaleness', 'correction', 'rhoMax', 'cMax'].flatMap((key) =>
    ['ppo', 'a2c'].map((id) => [`${id}.${key}`, { shownBy: `tests/training/actors.test.ts: ${key}` }]),
  ),
)

/** It acts where there are goals. */
const RELABELED: Shown = { shownBy: 'tests/algorithms/goals.test.ts: with a goal that its episode reached' }

/** Of so many settings the fast tier tries one. */
const THIN = 9

/** Settings as on a command line. */
type Texts = Readonly<Record<string, string | number | boolean>>

/** How a setting is shown to act: what it is changed to, and what has to hold beside it. Or the test that shows it. */
type Shown = { readonly to?: Texts[string]; readonly with?: Texts } | { readonly shownBy: string }

const asTexts = (texts: Texts) => Object.fromEntries(Object.entries(texts).map(([key, value]) => [key, String(value)]))

/** Without the keys of a phase that the mode has not, which are refused. */
function ofMode(texts: Texts): Record<string, string> {
  const absent = { rl: /^sft\./, sft: /^(rl|loss)\./ }[String(texts.mode)]
  return asTexts(Object.fromEntries(Object.entries(texts).filter(([key]) => !absent?.test(key))))
}

/** What a run came to, without what a clock, or the mere record of its settings, has a part in. */
async function outcomeOf(folder: string): Promise<string> {
  const names = (await readdir(folder, { recursive: true })).sort()
  const hash = createHash('sha256')
  for (const name of names) {
    hash.update(name)
    if (/columns\.safetensors$|model\.safetensors$|\.svg$/.test(name)) hash.update(await readFile(join(folder, name)))
    if (name === 'metrics.jsonl') {
      const text = await readFile(join(folder, name), 'utf8')
      hash.update(text.replace(/"(seconds|stepsPerSecond|\w+Seconds)":(\{[^}]*\}|[^,}]*)/g, ''))
    }
    if (name === 'summary.json') {
      const { status, updates, episodes, trajectories, reward } = JSON.parse(await readFile(join(folder, name), 'utf8'))
      hash.update(JSON.stringify({ status, updates, episodes, trajectories, reward }))
    }
  }
  return hash.digest('hex')
}

/** The outcome, or the words of the refusal. Anything but a refusal is thrown on. */
async function refusedOr(outcome: () => Promise<string>): Promise<string> {
  try {
    return await outcome()
  } catch (error) {
    if (error instanceof InputError) return `refused: ${error.message}`
    throw error
  }
}

/** Outcomes that are known already, by what their runs were told. */
const known = new Map<string, Promise<string>>()

function once(key: string, outcome: () => Promise<string>): Promise<string> {
  if (!known.has(key)) known.set(key, refusedOr(outcome))
  return known.get(key)!
}

/** Metrics without the figures of a clock, as text. */
function untimed(metrics: object): string {
  return JSON.stringify(metrics, (key, value) => (/[sS]econds?$/.test(key) ? null : value))
}

const newFolder = async () => join(await temporaryFolder(), 'run')

/** What the folder of a whole run comes to. */
function folderOutcome(environment: string, texts: Texts): Promise<string> {
  return once(`folder of ${environment} ${JSON.stringify(texts)}`, async () => {
    const folder = await newFolder()
    await (await startRun(await configureRun(environment, asTexts(texts)), folder)).train()
    return outcomeOf(folder)
  })
}

/** What a run's trainer tells and leaves, where the folder has no part in it. */
function trainerOutcome(environment: string, texts: Texts): Promise<string> {
  return once(`${environment} ${JSON.stringify(texts)}`, async () => {
    const definition = await configureRun(environment as EnvironmentId, asTexts(texts))
    const trainer = await runTrainer(definition)
    const hash = createHash('sha256')
    for await (const metrics of trainer.updates({ totalSteps: definition.settings.totalSteps }))
      hash.update(untimed(metrics))
    hash.update(trainer.world.cohorts[0]!.weights)
    trainer.close()
    return hash.digest('hex')
  })
}

/** Other values of a setting than the one that it has: all other words of a choice, else the first that is accepted. */
function othersOf(setting: Setting, current: unknown): Texts[string][] {
  if (typeof setting.default === 'boolean') return [!current]
  if (setting.words !== undefined) return setting.words.filter((word) => word !== current)
  if (setting.expected.startsWith('one of ')) {
    return setting.expected
      .slice('one of '.length)
      .split(', ')
      .filter((word) => word !== current)
  }
  if (Array.isArray(setting.default)) return ['3']
  const near = Number(current)
  const numbers = [near * 2, near / 2, near + 1, near - 1, 0.5, 1, 2, 0]
  const other = numbers.find((value) => value !== current && setting.accepts(value))
  return other === undefined ? [] : [other]
}

/**
 * Says which of the settings do nothing: each, in the fast tier every ninth one, is changed from what it is under `base`.
 * @returns a line for each that has no effect, or of which nobody knows another value.
 */
async function idle(
  keys: readonly (readonly [string, Setting])[],
  base: Texts,
  table: Readonly<Record<string, Shown>>,
  outcome: (texts: Texts) => Promise<string>,
): Promise<string[]> {
  const found: string[] = []
  for (const [key, setting] of keys.filter((_, i) => isThorough || i % THIN === 0)) {
    const shown = table[key] ?? {}
    if ('shownBy' in shown) {
      const [file, name] = shown.shownBy.split(': ') as [string, string]
      const text = await readFile(new URL(`../../${file}`, import.meta.url), 'utf8')
      if (!text.includes(name)) found.push(`${key}: ${file} has no ${name}`)
      continue
    }
    const beside = { ...base, ...shown.with }
    const current = beside[key] ?? setting.default
    const others = shown.to === undefined ? othersOf(setting, current) : [shown.to]
    if (others.length === 0) found.push(`${key}: no other value is known, name one in the table`)
    const seen = new Map([[await outcome(beside), String(current)]])
    for (const other of others) {
      const changed = await outcome({ ...beside, [key]: other })
      const same = seen.get(changed)
      if (same !== undefined) found.push(`${key}: ${other} does what ${same} does`)
      const isNamed = shown.with !== undefined || changed.includes(key.slice(key.indexOf('.') + 1))
      if (changed.startsWith('refused') && !isNamed) found.push(`${key}=${other} is ${changed}, without its name`)
      seen.set(changed, String(other))
    }
    const [first] = seen.keys()
    if (first!.startsWith('refused')) found.push(`${key}: what it is compared with is refused: ${first}`)
  }
  return found
}

describe('every setting of a control run acts', () => {
  const base: Texts = {
    numLanes: 4,
    totalSteps: 96,
    threads: 1,
    kernels: 'plain',
    policy: 'mlp',
    'mlp.hidden': '4',
    'ppo.numSteps': 8,
    'ppo.numMinibatches': 2,
    'ppo.updateEpochs': 2,
    'ppo.learningRate': 0.05,
    'ppo.clipCoef': 0.05,
  }
  test('of the run', async () => {
    const weights = join(await temporaryFolder(), 'weights')
    await (await startRun(await configureRun('CartPole-v1', asTexts({ ...base, seed: 3 })), weights)).train()
    const table: Record<string, Shown> = {
      weights: { to: join(weights, 'checkpoints', '00000003', 'columns.safetensors') },
      from: { shownBy: 'tests/training/settings-act.test.ts: of a run that learns from a file' },
      epochs: { shownBy: 'tests/training/settings-act.test.ts: of a run that learns from a file' },
      checkpointEvery: { to: 1 },
      checkpointsKept: { to: 1, with: { checkpointEvery: 1 } },
      loggers: { to: 'csv' },
      evaluateEvery: { to: 1 },
      evaluateEpisodes: { to: 3, with: { evaluateEvery: 1 } },
      stop: { shownBy: 'tests/training/callbacks.test.ts: stop' },
      stopAt: { shownBy: 'tests/training/judge.test.ts: stopAt=3' },
      patience: { shownBy: 'tests/training/judge.test.ts: patience' },
      stopWhenSolved: { shownBy: 'tests/training/run.test.ts: stopWhenSolved=true' },
      kernels: { to: 'simd' }, // `best` is one of the others.
      threads: { shownBy: 'tests/training/threads.test.ts: threads' },
      actors: { shownBy: 'tests/cli/actors.test.ts: actors=2' },
      fleet: { shownBy: 'tests/fleet/fleet-processes.test.ts: learns the same as one process' },
      store: { shownBy: 'tests/fleet/fleet-processes.test.ts: learns the same as one process' },
      learners: { shownBy: 'tests/training/fleet/learners.test.ts: have the bits of one' },
      acknowledge: { shownBy: 'tests/training/fleet/fleet.test.ts: acknowledge' },
      actorSeconds: { shownBy: 'tests/fleet/fleet-processes.test.ts: actorSeconds=2' },
      stallSeconds: { shownBy: 'tests/cli/stuck.test.ts: stallSeconds=3' },
      onStall: { shownBy: 'tests/cli/stuck.test.ts: onStall=stop' },
      policy: { shownBy: 'tests/training/settings-act.test.ts: of the policy' },
      algorithm: { shownBy: 'tests/cli.test.ts: trains by the algorithm that a module exports' },
      systems: { shownBy: 'tests/systems/rewards.test.ts: has systems, keeps them in its folder' },
      wrappers: { shownBy: 'tests/environments/wrappers.test.ts: has wrappers, keeps them in its folder' },
    }
    const keys = [...(await runKeys('CartPole-v1', { policy: 'mlp' }))].filter(([key]) => !key.includes('.'))
    expect(await idle(keys, base, table, (texts) => folderOutcome('CartPole-v1', texts))).toEqual([])
  })

  test('of a run that learns from a file', async () => {
    const [first, second] = await Promise.all(
      [3, 4].map(async (seed) => {
        const folder = await newFolder()
        await (await startRun(await configureRun('CartPole-v1', asTexts({ ...base, seed })), folder)).train()
        return join(folder, 'rollouts', '00000003.arrow')
      }),
    )
    const { numLanes, totalSteps, ...rest } = base
    const told = { ...rest, from: first! }
    const table: Record<string, Shown> = {
      from: { to: second! },
      'ppo.rhoMax': { to: 0.9 },
      'ppo.cMax': { to: 0.5 },
    }
    const keys = [...(await runKeys('CartPole-v1', { policy: 'mlp' }))]
    const own = keys.filter(([key]) => /^(from|epochs|ppo\.(correction|rhoMax|cMax))$/.test(key))
    expect(own).toHaveLength(5)
    expect(await idle(own, told, table, (texts) => folderOutcome('CartPole-v1', texts))).toEqual([])
  })

  test('of ppo and of the perceptron', async () => {
    const table: Record<string, Shown> = {
      ...AHEAD,
      'ppo.clipValue': { to: 0.001 },
      'ppo.targetKl': { to: 1e-9 },
      'ppo.maxGradNorm': { to: 0.01 },
      'ppo.warmupFraction': { to: 1 },
      'ppo.momentum': { with: { 'ppo.optimizer': 'sgd' } },
      'mlp.logStd': { shownBy: 'tests/training/settings-act.test.ts: of an action that is a box' },
      'mlp.device': { shownBy: 'tests/policies/webgpu.test.ts: two updates of %s leave' },
    }
    const keys = [...(await runKeys('CartPole-v1', { policy: 'mlp' }))].filter(([key]) => /^(ppo|mlp)\./.test(key))
    expect(await idle(keys, base, table, (texts) => trainerOutcome('CartPole-v1', texts))).toEqual([])
  })

  test('of a2c', async () => {
    const rest = Object.fromEntries(Object.entries(base).filter(([key]) => !key.startsWith('ppo.')))
    const told = { ...rest, algorithm: 'a2c', 'a2c.numSteps': 8, 'a2c.learningRate': 0.05 }
    const table: Record<string, Shown> = {
      ...AHEAD,
      'a2c.maxGradNorm': { to: 0.01 },
      'a2c.warmupFraction': { to: 1 },
      'a2c.beta1': { to: 0.5, with: { 'a2c.optimizer': 'adam' } },
      'a2c.beta2': { to: 0.5, with: { 'a2c.optimizer': 'adam' } },
    }
    const keys = [...(await runKeys('CartPole-v1', { algorithm: 'a2c' }))]
    const own = keys.filter(([key]) => key.startsWith('a2c.'))
    expect(own.length).toBeGreaterThan(12)
    expect(await idle(own, told, table, (texts) => trainerOutcome('CartPole-v1', texts))).toEqual([])
  })

  test('of dqn and of its network', async () => {
    const told = {
      ...{ numLanes: 4, totalSteps: 96, threads: 1, kernels: 'plain', algorithm: 'dqn', 'qNetwork.hidden': '4' },
      ...{ 'dqn.learningStarts': 8, 'dqn.batchSize': 8, 'dqn.replayRows': 40, 'dqn.learningRate': 0.05 },
      // Not those of the preset, with which so short a training has no schedule.
      ...{ 'dqn.numSteps': 4, 'dqn.gradientSteps': 4, 'dqn.explorationFraction': 0.5 },
      ...{ 'dqn.learningRateSchedule': 'constant' },
      ...{ 'dqn.targetInterval': 3, 'dqn.maxGradNorm': 0.05, 'dqn.priorityExponent': 0.6, 'dqn.nStep': 2 },
    }
    const table: Record<string, Shown> = {
      'dqn.warmupFraction': { to: 1 },
      'dqn.momentum': { with: { 'dqn.optimizer': 'sgd' } },
      'dqn.replayRows': { to: 24 },
      'dqn.learningStarts': { to: 40 },
      'dqn.targetRate': { to: 0.5 },
      'dqn.huberDelta': { to: 0.1 },
      'dqn.priorityCorrection': { to: 1 },
      'dqn.relabelFraction': RELABELED,
    }
    const keys = [...(await runKeys('CartPole-v1', { algorithm: 'dqn' }))]
    const own = keys.filter(([key]) => /^(dqn|qNetwork)\./.test(key))
    expect(own.length).toBeGreaterThan(25)
    const ofPictures = own.filter(([key]) => /filters|kernelSize/.test(key))
    const others = own.filter((each) => !ofPictures.includes(each))
    expect(await idle(others, told, table, (texts) => trainerOutcome('CartPole-v1', texts))).toEqual([])
    const filters = { 'qNetwork.filters': '2' }
    const pictured: Record<string, Shown> = {
      'qNetwork.filters': { to: '3', with: filters },
      'qNetwork.kernelSize': { to: 2, with: filters },
    }
    expect(await idle(ofPictures, told, pictured, (texts) => trainerOutcome('Breakout-MinAtar', texts))).toEqual([])
  })

  test('of sac and of its network', async () => {
    const told = {
      ...{ numLanes: 4, totalSteps: 96, threads: 1, kernels: 'plain', algorithm: 'sac', 'sacNetwork.hidden': '4' },
      ...{ 'sac.learningStarts': 8, 'sac.batchSize': 8, 'sac.replayRows': 40, 'sac.learningRate': 0.05 },
      ...{
        'sac.numSteps': 4,
        'sac.gradientSteps': 4,
        'sac.targetInterval': 3,
        'sac.maxGradNorm': 0.05,
        'sac.priorityExponent': 0.6,
        'sac.nStep': 2,
      },
    }
    const table: Record<string, Shown> = {
      'sac.warmupFraction': { to: 1 },
      'sac.momentum': { with: { 'sac.optimizer': 'sgd' } },
      'sac.replayRows': { to: 24 },
      'sac.learningStarts': { to: 40 },
      'sac.priorityCorrection': { to: 1 },
      'sac.relabelFraction': RELABELED,
      'sac.temperature': { to: 0.2 },
      'sac.targetEntropy': { to: -3 },
    }
    const keys = [...(await runKeys('Pendulum-v1', { algorithm: 'sac' }))]
    const own = keys.filter(([key]) => /^(sac|sacNetwork)\./.test(key))
    expect(own.length).toBeGreaterThan(22)
    expect(await idle(own, told, table, (texts) => trainerOutcome('Pendulum-v1', texts))).toEqual([])
  })

  test('of td3 and of its network', async () => {
    const told = {
      ...{ numLanes: 4, totalSteps: 96, threads: 1, kernels: 'plain', algorithm: 'td3', 'td3Network.hidden': '4' },
      ...{ 'td3.learningStarts': 8, 'td3.batchSize': 8, 'td3.replayRows': 40, 'td3.learningRate': 0.05 },
      ...{ 'td3.numSteps': 4, 'td3.gradientSteps': 4, 'td3.targetInterval': 3, 'td3.maxGradNorm': 0.05 },
      ...{ 'td3.priorityExponent': 0.6, 'td3.nStep': 2 },
    }
    const table: Record<string, Shown> = {
      'td3.warmupFraction': { to: 1 },
      'td3.momentum': { with: { 'td3.optimizer': 'sgd' } },
      'td3.replayRows': { to: 24 },
      'td3.learningStarts': { to: 40 },
      'td3.priorityCorrection': { to: 1 },
      'td3.relabelFraction': RELABELED,
      'td3.targetNoiseClip': { to: 0.01 },
    }
    const keys = [...(await runKeys('Pendulum-v1', { algorithm: 'td3' }))]
    const own = keys.filter(([key]) => /^(td3|td3Network)\./.test(key))
    expect(own.length).toBeGreaterThan(24)
    expect(await idle(own, told, table, (texts) => trainerOutcome('Pendulum-v1', texts))).toEqual([])
  })

  test('of iql and of its network', async () => {
    const told = {
      ...{ numLanes: 4, totalSteps: 96, threads: 1, kernels: 'plain', algorithm: 'iql', 'iqlNetwork.hidden': '4' },
      ...{ 'iql.learningStarts': 8, 'iql.batchSize': 8, 'iql.replayRows': 40, 'iql.learningRate': 0.05 },
      ...{ 'iql.numSteps': 4, 'iql.gradientSteps': 4, 'iql.targetInterval': 3, 'iql.maxGradNorm': 0.05 },
      ...{ 'iql.priorityExponent': 0.6, 'iql.nStep': 2 },
    }
    const table: Record<string, Shown> = {
      'iql.warmupFraction': { to: 1 },
      'iql.momentum': { with: { 'iql.optimizer': 'sgd' } },
      'iql.replayRows': { to: 24 },
      'iql.learningStarts': { to: 40 },
      'iql.priorityCorrection': { to: 1 },
      'iql.relabelFraction': RELABELED,
      'iql.weightMax': { to: 0.01 },
    }
    const keys = [...(await runKeys('Pendulum-v1', { algorithm: 'iql' }))]
    const own = keys.filter(([key]) => /^(iql|iqlNetwork)\./.test(key))
    expect(own.length).toBeGreaterThan(24)
    expect(await idle(own, told, table, (texts) => trainerOutcome('Pendulum-v1', texts))).toEqual([])
  })

  test.each([
    ['td3bc', 'Pendulum-v1', 'td3Network', { 'td3bc.targetNoiseClip': { to: 0.01 } }],
    ['cql', 'Pendulum-v1', 'sacNetwork', { 'cql.temperature': { to: 0.2 }, 'cql.targetEntropy': { to: -3 } }],
    ['discreteCql', 'CartPole-v1', 'qNetwork', { 'discreteCql.huberDelta': { to: 0.1 } }],
  ] as const)('of %s, which learns from a file', async (id, environment, network, own) => {
    const recording = asTexts({
      numLanes: 4,
      totalSteps: 96,
      threads: 1,
      policy: 'mlp',
      'mlp.hidden': '4',
      'ppo.numSteps': 24,
    })
    const folder = await newFolder()
    await (await startRun(await configureRun(environment, recording), folder)).train()
    const of = (texts: Texts) =>
      Object.fromEntries(Object.entries(texts).map(([key, value]) => [`${id}.${key}`, value]))
    const told = {
      ...{ threads: 1, kernels: 'plain', algorithm: id, from: join(folder, 'rollouts', '00000001.arrow') },
      ...{ [`${network}.hidden`]: '4' },
      ...of({ learningStarts: 8, batchSize: 8, replayRows: 40, learningRate: 0.05, numSteps: 4, gradientSteps: 4 }),
      ...of({ targetInterval: 3, maxGradNorm: 0.05, priorityExponent: 0.6, nStep: 2 }),
    }
    const table: Record<string, Shown> = {
      [`${id}.warmupFraction`]: { to: 1 },
      [`${id}.momentum`]: { with: { [`${id}.optimizer`]: 'sgd' } },
      [`${id}.replayRows`]: { to: 24 },
      [`${id}.learningStarts`]: { to: 40 },
      [`${id}.priorityCorrection`]: { to: 1 },
      [`${id}.targetRate`]: { to: 0.5 },
      [`${id}.relabelFraction`]: RELABELED,
      ...own,
    }
    const keys = [...(await runKeys(environment, { algorithm: id }))].filter(([key]) => key.startsWith(`${id}.`))
    expect(keys.length).toBeGreaterThan(18)
    expect(await idle(keys, told, table, (texts) => folderOutcome(environment, texts))).toEqual([])
  })

  test('of an action that is a box', async () => {
    const keys = [...(await runKeys('Pendulum-v1', { policy: 'mlp' }))]
    const some = keys.filter(([key]) => key === 'mlp.logStd')
    expect(some).toHaveLength(1)
    expect(await idle(some, base, {}, (texts) => trainerOutcome('Pendulum-v1', texts))).toEqual([])
    // No built-in environment shows pictures and takes numbers.
    const drawn = [0, 1].map((logStd) => {
      const model = policyFactory('convolutional')({ logStd } as never).build(
        box({ low: 0, high: 1, shape: [4, 4, 1] }),
        box({ low: -1, high: 1, shape: [2] }),
      )
      const weights = new Float32Array(model.numParameters)
      model.initialize(weights, new Random(1), 0)
      return weights
    })
    expect(drawn[0]).not.toEqual(drawn[1])
  })

  // Those of MuJoCo have their settings from one function: in the fast tier one of them is enough.
  const isHeavy = (id: string) => /^(HalfCheetah|Ant|Hopper|Humanoid|Inverted\w+|Swimmer|Walker2d|Pusher)-v5/.test(id)
  const ids = environments.map(({ id }) => id)
  test.each(ids.filter((id) => isThorough || !isHeavy(id)))('of %s', async (id) => {
    const keys = [...(await runKeys(id, { policy: 'mlp' }))].filter(([key]) => key.startsWith('environment.'))
    const cards = { shownBy: 'tests/environments/toy-text.test.ts: plays Gymnasium’s games (%s)' }
    const table: Record<string, Shown> = {
      'environment.maxEpisodeSteps': { to: 5 },
      'environment.goalVelocity': { shownBy: 'tests/environments/classic-control.test.ts: where the car is too slow' },
      'environment.firstLevel': { with: { 'environment.levels': 4 } },
      'environment.map': { to: 'SF/FG' },
      'environment.sab': cards,
      'environment.natural': cards,
      'environment.predators': { with: { numLanes: 12 } },
      'environment.prey': { with: { numLanes: 12 } },
      'environment.snakes': { with: { numLanes: 8 } },
    }
    expect(await idle(keys, base, table, (texts) => trainerOutcome(id, texts))).toEqual([])
  })

  // One step is made of each.
  test.each(
    policies
      .filter(({ id }) => !['mlp', 'qNetwork', 'sacNetwork', 'td3Network', 'iqlNetwork'].includes(id))
      .map((factory) => [factory.id, factory] as const),
  )('of the policy %s', async (id, factory) => {
    const environment = id === 'convolutional' ? 'Breakout-MinAtar' : 'Pendulum-v1'
    const small = { dense: { hidden: '4' }, convolutional: { filters: '2', hidden: '4' } }[id] ?? {
      hidden: '4',
      units: 4,
      sequenceLength: 4,
    }
    const own = Object.fromEntries(Object.entries(small).map(([key, value]) => [`${id}.${key}`, value]))
    const { 'mlp.hidden': _, ...rest } = base
    const on: Texts = id === 'dense' ? { 'dense.device': 'cpu' } : {}
    const told = { ...rest, policy: id, totalSteps: 32, 'ppo.updateEpochs': 1, ...on, ...own }
    const keys = [...(await runKeys(environment, { policy: factory.id }))]
    const table: Record<string, Shown> = {
      [`${id}.device`]: { shownBy: 'tests/policies/network.test.ts: wasm' },
      [`${id}.burnIn`]: { to: 4 },
      [`${id}.sequenceLength`]: { to: 2 },
      'convolutional.logStd': { shownBy: 'tests/training/settings-act.test.ts: of an action that is a box' },
    }
    const some = keys.filter(([key]) => key.startsWith(`${id}.`))
    const ofPictures = some.filter(([key]) => id === 'recurrent' && /filters|kernelSize/.test(key))
    const others = some.filter((each) => !ofPictures.includes(each))
    expect(await idle(others, told, table, (texts) => trainerOutcome(environment, texts))).toEqual([])
    const filters = { 'recurrent.filters': '2' }
    const pictured = {
      'recurrent.filters': { to: '3', with: filters },
      'recurrent.kernelSize': { to: 2, with: filters },
    }
    expect(await idle(ofPictures, told, pictured, (texts) => trainerOutcome('Breakout-MinAtar', texts))).toEqual([])
  })
})

describe('every setting of a run of a language model acts', () => {
  const base: Texts = {
    numLanes: 6,
    threads: 1,
    kernels: 'plain',
    mode: 'rl',
    'sft.updates': 2,
    'sft.batchSize': 2,
    'rl.updates': 2,
    'rl.groupsPerUpdate': 2,
    'rl.groupSize': 3,
    'rl.updateEpochs': 2,
    'rl.learningRate': 0.02,
    'rl.optimizer': 'sgd',
    'sft.optimizer': 'sgd',
    'languageModel.width': 8,
    'languageModel.layers': 1,
    'languageModel.heads': 2,
  }

  /**
   * Conversations about digits, whose rewards differ but for those of one prompt, and are unknown here and there; and whose
   * weights are pushed when all of an update is said: what was recorded is then of other weights than those that learn.
   */
  function talk(run: () => Run<ConversationRunDefinition>) {
    let replies = 0
    return digits({
      respond: ({ completion, exampleIndex }) => {
        replies++
        const { weights } = run().trainer.world.cohort()
        for (let k = 0; replies % 6 === 0 && k < weights.length; k++) weights[k] = weights[k]! + 0.05 * Math.sin(7 * k)
        if (exampleIndex % 2 === 1 && completion.length % 3 !== 0) return { reward: null, error: 'no third' }
        if (exampleIndex === 2) return { reward: 0 }
        return { reward: [...completion].reduce((sum, digit) => sum + (Number(digit) || 0), 0) / 20 }
      },
    })
  }

  /** What a run's trainer tells and leaves; without an id, of those conversations. */
  function outcomeIn(id: string | null, texts: Texts): Promise<string> {
    return once(`${id} ${JSON.stringify(texts)}`, async () => {
      const definition = await configureRun((id ?? 'text/copy') as TextEnvironmentId, ofMode(texts))
      const environment = id === null ? talk(() => run) : definition.environment
      const run: Run<ConversationRunDefinition> = await startRun({ ...definition, environment }, await newFolder())
      const { trainer } = run
      const hash = createHash('sha256')
      for await (const metrics of trainer.updates({ phase: 'sft' })) hash.update(untimed(metrics))
      for await (const metrics of trainer.updates()) hash.update(untimed(metrics))
      hash.update(trainer.world.cohort().weights).update(trainer.world.cohort().adapter?.weights ?? '')
      trainer.close()
      return hash.digest('hex')
    })
  }
  const outcome = (texts: Texts) => outcomeIn(null, texts)

  const ofPart = async (part: string) =>
    [...(await runKeys('text/copy'))].filter(([key]) => (part === '' ? !key.includes('.') : key.startsWith(part)))

  const adamOnly = (part: string): Record<string, Shown> =>
    Object.fromEntries(
      ['beta1', 'beta2', 'epsilon'].map((key) => [part + key, { to: 0.5, with: { [`${part}optimizer`]: 'adam' } }]),
    )

  test('of the run', async () => {
    const table: Record<string, Shown> = {
      kernels: { to: 'simd' },
      threads: { shownBy: 'tests/training/text/threads.test.ts: threads' },
      ...Object.fromEntries(
        ['fleet', 'store', 'actors', 'acknowledge', 'actorSeconds'].map((key) => {
          return [key, { shownBy: `tests/fleet/text-processes.test.ts: ${key}=` }]
        }),
      ),
      replySeconds: { shownBy: 'tests/cli/stuck.test.ts: replySeconds=1' },
      turnSeconds: { shownBy: 'tests/training/text/asynchronous.test.ts: turnSeconds' },
      backend: { shownBy: 'tests/training/tinker.test.ts: backend' },
      agent: { shownBy: 'tests/training/text/agents-of-run.test.ts: trained by the environment' },
      agentSeconds: { shownBy: 'tests/training/text/agents-of-run.test.ts: agentSeconds' },
      maxAgents: { shownBy: 'tests/training/text/agents-of-run.test.ts: maxAgents' },
      stallSeconds: { shownBy: 'tests/cli/stuck.test.ts: stallSeconds=3' },
      onStall: { shownBy: 'tests/cli/stuck.test.ts: onStall=stop' },
      tooLong: { shownBy: 'tests/training/text/rows.test.ts: tooLong' },
      heldOutFraction: { shownBy: 'tests/training/text/held-out-run.test.ts: heldOutFraction' },
      heldOutSeed: { shownBy: 'tests/training/text/held-out-run.test.ts: heldOutSeed' },
      heldOutEpisodes: { shownBy: 'tests/training/text/held-out-run.test.ts: heldOutEpisodes' },
      cutTurn: { shownBy: 'tests/systems/text/cut-turns.test.ts: cutTurn' },
      segmentation: { shownBy: 'tests/environments/agent.test.ts: segmentation' },
      rewardReduction: { shownBy: 'tests/systems/text/conversations.test.ts: rewardReduction' },
      checkpointEvery: { to: 1 },
      checkpointsKept: { with: { checkpointEvery: 1 }, to: 1 },
      loggers: { to: 'csv' },
      evaluateEvery: { shownBy: 'tests/training/judge.test.ts: evaluateEvery' },
      evaluateEpisodes: { shownBy: 'tests/training/judge.test.ts: evaluateEpisodes' },
      stop: { shownBy: 'tests/training/callbacks.test.ts: stop' },
      stopAt: { shownBy: 'tests/training/judge.test.ts: stopAt' },
      patience: { shownBy: 'tests/training/judge.test.ts: patience' },
      numLanes: { to: 2 },
    }
    const whole = (texts: Texts) =>
      once(`folder of text ${JSON.stringify(texts)}`, async () => {
        const folder = await newFolder()
        await (await startRun(await configureRun('text/copy', ofMode(texts)), folder)).train()
        return outcomeOf(folder)
      })
    expect(await idle(await ofPart(''), base, table, whole)).toEqual([])
  })

  test('of sft', async () => {
    const table: Record<string, Shown> = {
      'sft.loss': { shownBy: 'tests/training/text/preferences.test.ts: loss' },
      'sft.lossSettings': { shownBy: 'tests/training/text/preferences.test.ts: lossSettings' },
      'sft.maxGradNorm': { to: 0.01 },
      'sft.warmupFraction': { to: 1 },
      ...adamOnly('sft.'),
      'sft.learningRateSchedule': { with: { 'sft.updates': 3 } },
      'sft.optimizer': { to: 'adam' },
      'sft.momentum': { with: { 'sft.optimizer': 'sgd' } },
    }
    expect(await idle(await ofPart('sft.'), { ...base, mode: 'sft' }, table, outcome)).toEqual([])
  })

  test('of rl', async () => {
    const table: Record<string, Shown> = {
      'rl.maxStaleness': { to: 1, with: { numLanes: 3 } },
      'rl.teacher': { shownBy: 'tests/training/text/teacher.test.ts: teacher' },
      'rl.overSampling': { shownBy: 'tests/training/text/asynchronous.test.ts: overSampling' },
      'rl.order': { shownBy: 'tests/training/text/asynchronous.test.ts: order' },
      'rl.failure': { shownBy: 'tests/training/text/asynchronous.test.ts: failure' },
      'rl.weightSwap': { shownBy: 'tests/training/text/asynchronous.test.ts: weightSwap' },
      'rl.staleLoss': { shownBy: 'tests/training/text/asynchronous.test.ts: staleLoss' },
      'rl.dropsMax': { to: 0, with: { 'rl.filter': 'reward-nonzero-std', 'rl.updates': 9 } },
      ...adamOnly('rl.'),
      'rl.learningRateSchedule': { with: { 'rl.updates': 3 } },
      'rl.optimizer': { to: 'adam' },
      'rl.momentum': { with: { 'rl.optimizer': 'sgd' } },
      'rl.loss': { to: 'dapo' },
      'rl.filter': { to: 'reward-nonzero-std', with: { 'rl.topK': 1, 'rl.dropsMax': 5 } },
      'rl.maxGradNorm': { to: 0.01 },
      'rl.warmupFraction': { to: 1 },
      'rl.topK': { to: 2 },
      'rl.topP': { to: 0.5 },
      'rl.minP': { to: 0.5 },
    }
    expect(await idle(await ofPart('rl.'), base, table, outcome)).toEqual([])
  })

  test('of the loss', async () => {
    const critic = { 'loss.advantage': 'critic', 'languageModel.critic': true }
    const kl = { 'loss.klCoef': 0.5 }
    const corrected = { 'loss.correction': 'token-mask', 'loss.correctionLow': 1 }
    const table: Record<string, Shown> = {
      'loss.epsilon': { to: 0.5 },
      'loss.lone': { with: { 'rl.groupSize': 2, 'rl.groupsPerUpdate': 3 } },
      'loss.gamma': { with: { 'loss.advantage': 'returns' } },
      'loss.gaeLambda': { with: critic },
      'loss.rewardCoef': { shownBy: 'tests/training/text/teacher.test.ts: rewardCoef' },
      'loss.rewardKlCoef': { to: 0.5 },
      'loss.overlongCache': { to: 3, with: { 'loss.maxLength': 6 } },
      'loss.overlongFactor': { with: { 'loss.overlongCache': 3, 'loss.maxLength': 6 } },
      'loss.ratio': { with: { 'loss.advantage': 'returns', 'loss.gamma': 0.5 } },
      'loss.correction': { with: { 'loss.correctionLow': 0.99, 'loss.correctionHigh': 1.01 } },
      'loss.aggregation': { with: { 'loss.aggregation': 'token-mean', 'loss.maxLength': 9 } },
      'loss.sequencePart': { with: { 'loss.ratio': 'hybrid' } },
      'loss.tokenPart': { with: { 'loss.ratio': 'hybrid' } },
      'loss.clipLow': { to: 0.001 },
      'loss.clipHigh': { to: 0.001 },
      'loss.dualClip': { to: 1.001 },
      'loss.ratioMax': { to: 1.001, with: { 'loss.clipHigh': 5 } },
      'loss.tauPositive': { with: { 'loss.surrogate': 'sapo' } },
      'loss.tauNegative': { with: { 'loss.surrogate': 'sapo' } },
      'loss.logRatioMax': { to: 1e-3 },
      'loss.kl': { with: kl },
      'loss.klCoef': { to: 0.5 },
      'loss.klCorrected': { with: kl },
      'loss.klMax': { to: 1e-6, with: kl },
      'loss.correctionLow': { to: 0.99, with: { 'loss.correction': 'token-mask' } },
      'loss.correctionHigh': { to: 1.01, with: { 'loss.correction': 'token-mask' } },
      'loss.countsRejected': { with: corrected },
      'loss.countsEmpty': { with: { 'loss.aggregation': 'sequence-mean' } },
      'loss.maxLength': { to: 17, with: { 'loss.aggregation': 'constant-length' } },
      'loss.valueCoef': { with: critic },
      'loss.clipValue': { to: 1e-4, with: critic },
    }
    expect(await idle(await ofPart('loss.'), base, table, outcome)).toEqual([])
  })

  test('of the model', async () => {
    const adapted = { 'languageModel.loraRank': 2 }
    const table: Record<string, Shown> = {
      'languageModel.folder': { shownBy: 'tests/language/language-model.test.ts: folder' },
      'languageModel.initialize': { shownBy: 'tests/language/language-model.test.ts: initialize' },
      'languageModel.trainable': { to: 'model.norm.weight' },
      'languageModel.adapter': { shownBy: 'tests/language/transformer/lora.test.ts: adapter' },
      'languageModel.context': { to: 4 },
      'languageModel.width': { to: 12 },
      'languageModel.loraAlpha': { with: adapted },
      'languageModel.loraDropout': { with: adapted },
      'languageModel.loraTargets': { to: 'q_proj', with: adapted },
      'languageModel.loraLayers': { to: 1, with: { ...adapted, 'languageModel.layers': 2 } },
      'languageModel.loraStabilized': { with: adapted },
      'languageModel.quantize': { to: 4, with: adapted },
      'languageModel.embeddingBits': { to: 8, with: { ...adapted, 'languageModel.quantize': 8 } },
      'languageModel.device': { shownBy: 'tests/algorithms/device-learner.test.ts: languageModel.device moves' },
      'languageModel.cacheBits': { to: 16 },
      'languageModel.checkpointing': { shownBy: 'tests/language/transformer/packed.test.ts: checkpointing' },
      'languageModel.quantizeActivations': { with: { ...adapted, 'languageModel.quantize': 8 } },
    }
    expect(await idle(await ofPart('languageModel.'), base, table, outcome)).toEqual([])
  })

  test.each(textEnvironments.map(({ id }) => id))('of %s', async (id) => {
    const own = [...(await runKeys(id))].filter(([key]) => key.startsWith('environment.'))
    const table: Record<string, Shown> = {
      'environment.numExamples': { to: 3 },
      'environment.minLength': { to: 3 },
      'environment.maxLength': { to: 5 },
      'environment.guesses': { shownBy: 'tests/environments/tasks/tasks.test.ts: guesses' },
      'environment.attempts': { shownBy: 'tests/environments/agent.test.ts: attempts' },
      'environment.turnDiscount': { shownBy: 'tests/environments/agent.test.ts: turnDiscount' },
      'environment.shownFraction': { to: 1 },
      'environment.callCost': { shownBy: 'tests/environments/use-tools.test.ts: callCost' },
    }
    expect(await idle(own, { ...base, mode: 'sft' }, table, (texts) => outcomeIn(id, texts))).toEqual([])
  })

  test('of prompts from a file', async () => {
    const folder = await temporaryFolder()
    const file = async (name: string, rows: readonly object[]) => {
      await writeFile(join(folder, name), rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
      return join(folder, name)
    }
    const rows = Array.from({ length: 7 }, (_, i) => ({
      prompt: `${i}+1=`,
      answer: `${i + 1}`,
      other: `${i}*2=`,
      right: `${2 * i}`,
    }))
    const path = await file('sums.jsonl', rows)
    const own = [...(await runKeys('text/dataset'))].filter(([key]) => key.startsWith('environment.'))
    const told = { ...base, mode: 'sft+rl', 'environment.path': path, 'environment.maxTokens': 5 }
    const table: Record<string, Shown> = {
      'environment.path': { to: await file('others.jsonl', rows.slice(3)) },
      'environment.subset': { to: 'main' },
      'environment.split': { to: 'test' },
      'environment.prompt': { to: 'other' },
      'environment.answer': { to: 'right' },
      'environment.rejected': {
        to: 'prompt',
        with: { mode: 'sft', 'sft.loss': 'dpo', 'environment.rejected': 'other' },
      },
      'environment.limit': { to: 2 },
      'environment.completion': { shownBy: 'tests/training/text/rows.test.ts: completion' },
      'environment.messages': { shownBy: 'tests/training/text/rows.test.ts: messages' },
      'environment.text': { shownBy: 'tests/training/text/rows.test.ts: text' },
      'environment.reward': { to: 'length' },
      'environment.retries': { shownBy: 'tests/language/rewards/reward.test.ts: retries' },
      'environment.timeoutMs': { shownBy: 'tests/language/rewards/reward.test.ts: timeoutMs' },
    }
    expect(await idle(own, told, table, (texts) => outcomeIn('text/dataset', texts))).toEqual([])
  })
})
