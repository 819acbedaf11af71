import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { ifExistsSetting, parseSeeds, trainSeeds } from '../../src/entries/data.ts'
import { csv } from '../../src/entries/loggers.ts'
import { createTrainer, createWorld, mlp, ppo, readArrow, startRun, writeArrow } from '../../src/index.ts'
import { listCheckpoints } from '../../src/training/folder/checkpoint.ts'
import { inProcess, SMALL, start } from '../support/command.ts'
import { advance, advanceTo, columnsOf, smallRun, smallTrainer } from '../support/small-training.ts'
import { contents, temporaryFolder } from '../support/temporary.ts'

let here: string
let folder: string
let told: string[]
beforeEach(async () => {
  here = await temporaryFolder()
  folder = join(here, 'model')
  told = []
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    told.push(String(text))
    return true
  })
})
afterEach(() => void vi.restoreAllMocks())

/** What a first run of a program leaves: checkpoints 1 and 2. */
async function former() {
  const trainer = await smallTrainer({ folder })
  for (let i = 0; i < 2; i++) {
    await advance(trainer, 1)
    await trainer.save()
  }
  trainer.close()
  await vi.waitFor(async () => expect(await readdir(folder)).toEqual(['checkpoints']))
  return trainer
}

describe('a program that is run again', () => {
  test('trains in a numbered folder beside the former, and says so in a line', async () => {
    await former()
    const before = await contents(folder)
    await mkdir(join(here, 'model-2'))
    await writeFile(join(here, 'model-2', 'notes.txt'), 'mine') // No training: it is free.
    for (const [i, gamma] of [0.99, 0.5].entries()) {
      const trainer = await smallTrainer({ folder, gamma })
      expect(trainer.folder).toBe(folder)
      await advance(trainer, 1)
      expect(trainer.folder).toBe(`${folder}-${i + 2}`)
      expect(await trainer.save()).toBe(join(`${folder}-${i + 2}`, 'checkpoints', '00000001'))
      trainer.close()
    }
    expect(await contents(folder)).toEqual(before)
    const line = (number: number) =>
      `colonnade: ${folder} holds a training, so this training goes to ${folder}-${number} ` +
      "(ifExists: 'resume' continues it, ifExists: 'replace' starts over)\n"
    expect(told).toEqual([line(2), line(3)])
  })

  test('decides at what comes first: an update, a checkpoint, or learning from a table', async () => {
    await former()
    const saved = await smallTrainer({ folder })
    expect(await saved.save()).toBe(join(`${folder}-2`, 'checkpoints', '00000000'))
    await advance(saved, 1)
    expect(saved.folder).toBe(`${folder}-2`)
    await writeArrow(join(here, 'rollout.arrow'), saved.rollout.table)
    const learner = await smallTrainer({ folder })
    for await (const _ of learner.learn(await readArrow(join(here, 'rollout.arrow'))));
    expect(learner.folder).toBe(`${folder}-3`)
    expect(told).toHaveLength(2)
  })

  test('goes on in the folder that it restores, and beside it where it restores an older checkpoint', async () => {
    await former()
    const trainer = await smallTrainer({ folder })
    await trainer.restore()
    await advance(trainer, 1)
    await trainer.save()
    trainer.close()
    expect([trainer.folder, told]).toEqual([folder, []])
    expect(await listCheckpoints(folder)).toEqual([1, 2, 3])
    const older = await smallTrainer({ folder })
    await older.restore(undefined, 1)
    await advance(older, 1)
    await older.save()
    expect(await listCheckpoints(`${folder}-2`)).toEqual([2])
    expect(told[0]).toContain('model holds the checkpoint 3 of this training, which stands at 1, so this training goes')
  })

  test('goes on where the last one ended if it asks to resume, with the bits of one that never stopped', async () => {
    await former()
    const trainer = await smallTrainer({ folder, ifExists: 'resume' })
    await advanceTo(trainer, 3)
    expect([trainer.update, trainer.folder, told]).toEqual([3, folder, []])
    const whole = await smallTrainer()
    await advance(whole, 3)
    expect(columnsOf(trainer)).toEqual(columnsOf(whole))
    const other = await smallTrainer({ folder, ifExists: 'resume', gamma: 0.5 })
    await expect(advance(other, 1)).rejects.toThrow(/algorithm, gamma: got 0.99, expected 0.5, as in this training/)
    const fresh = await smallTrainer({ folder: join(here, 'fresh'), ifExists: 'resume' })
    await advance(fresh, 1)
    expect([fresh.update, fresh.folder]).toEqual([1, join(here, 'fresh')])
  })

  test('removes the former training if it asks to replace it, and nothing else', async () => {
    await former()
    await writeFile(join(folder, 'notes.txt'), 'mine')
    const trainer = await smallTrainer({ folder, ifExists: 'replace', gamma: 0.5 })
    expect(await listCheckpoints(folder)).toEqual([1, 2])
    await advance(trainer, 1)
    expect((await readdir(folder)).filter((name) => !name.startsWith('.owner-'))).toEqual(['notes.txt'])
    await trainer.save()
    expect([await listCheckpoints(folder), trainer.folder, told]).toEqual([[1], folder, []])
  })

  test('is refused any other word, and what is there where it asks for that', async () => {
    await expect(smallTrainer({ folder, ifExists: 'overwrite' as never })).rejects.toThrow(
      'ifExists: got "overwrite", expected one of number, resume, replace, refuse',
    )
    expect(ifExistsSetting.default).toBe('number')
    expect(ifExistsSetting.accepts('overwrite')).toBe(false)
    await former()
    await expect(advance(await smallTrainer({ folder, ifExists: 'refuse' }), 1)).rejects.toThrow(
      "which stands at 0, expected a trainer that continues from there (trainer.restore(), or ifExists: 'resume'), or a",
    )
  })

  test('lets its loggers write where it trains', async () => {
    await former()
    const world = await createWorld({ environment: (await smallRun()).environment, policy: mlp(), numLanes: 4 })
    const trainer = createTrainer(world, ppo({ numSteps: 16 }), { folder, loggers: [csv()] })
    for await (const _ of trainer.updates({ totalSteps: 64 }));
    trainer.close()
    await vi.waitFor(async () => expect(await readdir(`${folder}-2`)).toContain('metrics.csv'))
    expect(await readdir(folder)).toEqual(['checkpoints'])
  })
})

test('several trainings that begin at once each have a folder, in one process and in several', async () => {
  const program = fileURLToPath(new URL('../support/train-in.mjs', import.meta.url))
  const processes = Array.from({ length: 3 }, () => start(process.execPath, [program, folder]))
  const ended = await Promise.all(processes.map((process) => process.ended))
  expect(ended.map(({ stderr, code }) => [code, stderr.replace(/^colonnade: .+\n$/, '')])).toEqual(
    ended.map(() => [0, '']),
  )
  const folders = ended.map(({ stdout }) => stdout.trim()).toSorted()
  expect(folders).toEqual([folder, `${folder}-2`, `${folder}-3`])
  for (const each of folders) expect(await listCheckpoints(each)).toEqual([1])
  const pair = await Promise.all([smallTrainer({ folder: join(here, 'b') }), smallTrainer({ folder: join(here, 'b') })])
  await Promise.all(pair.map((trainer) => advance(trainer, 1)))
  expect(pair.map((trainer) => trainer.folder).toSorted()).toEqual([join(here, 'b'), join(here, 'b-2')])
})

describe('a run that is begun where one is', () => {
  test('goes to a numbered folder, goes on, or takes its place', async () => {
    const definition = await smallRun()
    await (await startRun(definition, folder)).train()
    const second = await startRun(definition, `${folder}/`)
    expect(second.folder).toBe(`${folder}-2`)
    expect(second.moved).toBe(
      `${folder}/ holds a run, so this training goes to ${folder}-2 (ifExists=resume continues it, ifExists=replace starts over)`,
    )
    expect((await second.train()).status).toBe('complete')
    const further = { ...definition, settings: { ...definition.settings, totalSteps: 4096 } }
    const resumed = await startRun(further, folder, undefined, 'resume')
    expect([resumed.trainer.steps, resumed.definition.settings.totalSteps, resumed.folder]).toEqual([
      2048,
      4096,
      folder,
    ])
    expect((await resumed.train()).status).toBe('complete')
    const faster = { ...definition, algorithm: ppo({ ...definition.algorithm.parameters, learningRate: 0.5 } as never) }
    await expect(startRun(faster, folder, undefined, 'resume')).rejects.toThrow(
      /^algorithm\.learningRate of .+model: got 0\.5, expected [\d.]+, as when that run started$/,
    )
    await writeFile(join(folder, 'notes.txt'), 'mine')
    await expect(startRun(faster, folder, undefined, 'replace')).rejects.toThrow('which is not empty')
    expect(await readdir(folder)).toEqual(['notes.txt'])
  })

  test('on the command line', async () => {
    const words = ['train', 'CartPole-v1', 'out=model', ...SMALL]
    expect((await inProcess(words, here)).code).toBe(0)
    const { stdout, stderr } = await inProcess([...words, 'seed=2', '--json'], here)
    expect(JSON.parse(stdout)).toMatchObject({ folder: 'model-2', seed: 2 })
    expect(stderr).toContain('model holds a run, so this training goes to model-2 (ifExists=resume continues it, ')
    const replaced = await inProcess([...words, 'seed=2', 'ifExists=replace', '--json', '--quiet'], here)
    expect([JSON.parse(replaced.stdout).seed, replaced.stderr]).toEqual([2, ''])
    const resumed = await inProcess(
      [...words, 'seed=2', 'totalSteps=4096', 'ifExists=resume', '--json'].filter((word) => word !== 'totalSteps=2048'),
      here,
    )
    expect(JSON.parse(resumed.stdout)).toMatchObject({ folder: 'model', totalSteps: 4096 })
  })

  test('in a group: runs of the same words go on, others go beside them', async () => {
    const given = Object.fromEntries(SMALL.map((word) => word.split('=') as [string, string]))
    const place = { out: folder, tell: (line: string) => void told.push(line) }
    const first = await trainSeeds('CartPole-v1', given, parseSeeds('1'), place)
    const again = await trainSeeds('CartPole-v1', given, parseSeeds('1,2'), place)
    expect([first.folder, again.folder, told]).toEqual([folder, folder, []])
    const other = await trainSeeds('CartPole-v1', { ...given, numLanes: '4' }, [1], place)
    expect(other.folder).toBe(`${folder}-2`)
    expect(told[0]).toMatch(/model holds runs with other settings, so this training goes to .+model-2/)
    const replaced = await trainSeeds('CartPole-v1', { ...given, numLanes: '4' }, [1], {
      ...place,
      ifExists: 'replace',
    })
    expect([replaced.folder, await readdir(folder)]).toEqual([
      folder,
      ['group.json', 'learning-curve.svg', 'seed-1', 'summary.json'],
    ])
  })
})
