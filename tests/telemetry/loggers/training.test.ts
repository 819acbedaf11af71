/** Trainings that have loggers: runs by their settings, trainers by their options. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { csv, defineLogger, type LogEntry, type LoggedTraining, tensorboard } from '../../../src/entries/loggers.ts'
import { cartPole, createTrainer, createWorld, mlp, ppo } from '../../../src/index.ts'
import { configureRun, resumeRun, startRun } from '../../../src/training/run/run.ts'
import { eventFiles, readEvents } from '../../support/event-file.ts'
import { smallRun } from '../../support/small-training.ts'
import { temporaryFolder } from '../../support/temporary.ts'

/** Mutes what is told on standard error, and returns it. */
function muted(): string[] {
  const told: string[] = []
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => told.push(String(text)) > 0)
  return told
}

/** A module that exports a logger which fails from its second call on. */
const MODULE = `
export const failing = Object.assign(({ after = 1 } = {}) => ({
  id: 'failing',
  parameters: { after },
  open: () => {
    let calls = 0
    return { write() { if (++calls > after) throw new Error('full') } }
  },
}), { id: 'failing', settings: { after: { default: 1, description: 'calls', expected: 'a number', accepts: (n) => n >= 0 } } })
`

test('a run writes the same numbers for TensorBoard and as a table; one that fails stops nothing, and a resumed run goes on', async () => {
  const told = muted()
  const folder = await temporaryFolder()
  const module = join(folder, 'failing.mjs')
  await writeFile(module, MODULE)
  const path = join(folder, 'run')
  const words = ['totalSteps=1024', 'threads=1', 'checkpointEvery=2', 'checkpointsKept=9']
  const run = await startRun(await smallRun(...words, `loggers=tensorboard,csv,${module}|after=1`), path)
  const summary = await run.train()
  vi.restoreAllMocks()
  expect(summary.files).toMatchObject({ tensorboard: join(path, 'tensorboard'), csv: join(path, 'metrics.csv') })
  expect(told.join('')).toContain('warning: logger failing failed: full; the training goes on')
  expect(await readFile(join(path, 'run.log'), 'utf8')).toContain('logger failing lost 3 of 4 entries')
  const { settings } = JSON.parse(await readFile(join(path, 'config.json'), 'utf8'))
  expect(settings.loggers).toEqual(['tensorboard', 'csv', `${module}|after=1`])

  const others = { from: 2, settings: { loggers: 'tensorboard,csv' } }
  await expect(resumeRun(path, others)).rejects.toThrow(/^logger module of .*expected a trusted module/)
  const resumed = await resumeRun(path, { ...others, allowModule: () => true })
  await resumed.train()
  const lines = (await readFile(join(path, 'metrics.jsonl'), 'utf8'))
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
  const [header, ...rows] = (await readFile(join(path, 'metrics.csv'), 'utf8')).trimEnd().split('\n')
  const names = header!.split(',')
  const cells = rows.map((row) => Object.fromEntries(row.split(',').map((cell, i) => [names[i], cell])))
  const files = eventFiles(join(path, 'tensorboard')).map((file) => {
    return readEvents(file).filter(({ scalars }) => Object.keys(scalars).length > 0)
  })
  expect(files.map((events) => events.map(({ step }) => step))).toEqual([
    [1, 2, 3, 4],
    [3, 4],
  ])
  const events = [...files[0]!.slice(0, 2), ...files[1]!]
  expect(cells).toHaveLength(4)
  for (const [i, { phaseSeconds, ...line }] of lines.entries()) {
    expect(Number(cells[i]!.step)).toBe(line.update)
    expect(Number(cells[i]!['phaseSeconds/forward'])).toBe(phaseSeconds.forward)
    expect(events[i]!.scalars['phaseSeconds/step']).toBe(Math.fround(phaseSeconds.step))
    for (const [name, value] of Object.entries(line)) {
      if (value === null) continue
      expect(Number(cells[i]![name]), name).toBe(value)
      expect(events[i]!.scalars[name], name).toBe(Math.fround(value as number))
    }
  }
  const told2 = readEvents(eventFiles(join(path, 'tensorboard'))[0]!)
  expect(told2[1]!.hyperparameters).toMatchObject({ seed: 1, environment: 'CartPole-v1', 'ppo.gamma': 0.95 })
})

test('a trainer tells its loggers of each update before it yields it, and trains to the same bits', async () => {
  const folder = await temporaryFolder()
  const entries: LogEntry[] = []
  const trainings: LoggedTraining[] = []
  const ends: string[] = []
  const mine = defineLogger({
    id: 'mine',
    settings: {},
    open(_, training) {
      trainings.push(training)
      return { write: (some) => void entries.push(...some), close: (end) => void ends.push(end) }
    },
  })
  const train = async (loggers: NonNullable<Parameters<typeof createTrainer>[2]>['loggers']) => {
    const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4, seed: 1 })
    const trainer = createTrainer(
      world,
      ppo({ numSteps: 16, updateEpochs: 1 }),
      loggers === undefined ? {} : { loggers },
    )
    const losses: number[] = []
    for await (const { update, policyLoss } of trainer.updates({ totalSteps: 192 })) {
      losses.push(policyLoss as number)
      if (loggers !== undefined) expect(entries.length).toBe(update)
    }
    trainer.close()
    return { losses, weights: [...world.cohort().weights] }
  }
  const plain = await train(undefined)
  const logged = await train([mine(), tensorboard({ folder }), csv({ path: join(folder, 'all.csv') })])
  expect(logged).toEqual(plain)
  expect(entries.map(({ step, values }) => [step, values.policyLoss])).toEqual(
    plain.losses.map((loss, i) => [i + 1, loss]),
  )
  expect(trainings).toMatchObject([{ folder: null, done: 0, settings: { seed: 1, 'ppo.numSteps': 16 } }])
  expect(trainings[0]!.metrics.approxKl!.unit).toBe('nats')
  expect(trainings[0]!.metrics.update!.description).toContain('updates done')
  await vi.waitFor(() => expect(ends).toEqual(['complete']))
})

test.each([
  [
    'tensorbord',
    /logger: got "tensorbord" \(did you mean "tensorboard"\?\), expected one of tensorboard, .*, or the path of a module that exports one/,
  ],
  ['prometheus:x', /logger prometheus.port: got "x", expected a whole number/],
  ['csv|where=x', /setting of the logger csv: got "where", expected one of path/],
  ['csv,csv:b', /loggers: got csv twice/],
])('loggers=%s is refused', async (loggers, message) => {
  await expect(configureRun('CartPole-v1', { loggers })).rejects.toThrow(message)
})

test('what is no logger is refused', async () => {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4, seed: 1 })
  expect(() => createTrainer(world, ppo(), { loggers: [csv] as never })).toThrow(
    /loggers: got .*, expected loggers, like/,
  )
})
