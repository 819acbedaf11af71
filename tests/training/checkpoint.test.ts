import { cp, mkdir, readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { disk } from '../../src/base/files/files.ts'
import {
  cartPole,
  createTrainer,
  createWorld,
  type EpisodeCohort,
  InputError,
  mlp,
  pendulum,
  ppo,
  startRun,
  type Trainer,
} from '../../src/index.ts'
import {
  listCheckpoints,
  type Manifest,
  pruneCheckpoints,
  readCheckpoint,
  writeCheckpoint,
} from '../../src/training/folder/checkpoint.ts'
import { manifest, tensor } from '../support/checkpoints.ts'
import { advance, editManifest, sha256, smallRun, smallTrainer, stateOf } from '../support/small-training.ts'
import { contents, temporaryFolder } from '../support/temporary.ts'

let run: string
beforeEach(async () => {
  run = await temporaryFolder()
})

/** Where the checkpoint of an update lies. */
function place(update: number, ...names: string[]): string {
  return join(run, 'checkpoints', String(update).padStart(8, '0'), ...names)
}

async function edit(update: number, change: (manifest: Manifest) => unknown): Promise<void> {
  await editManifest(place(update, 'manifest.json'), change)
}

/** Fails with an InputError whose message matches, and leaves the trainer exactly as it was. */
async function expectRefusal(
  trainer: Trainer<EpisodeCohort>,
  message: RegExp | string,
  update?: number,
): Promise<void> {
  const before = stateOf(trainer)
  const restoring = trainer.restore(run, update)
  await expect(restoring).rejects.toThrow(message)
  await expect(restoring).rejects.toThrow(InputError)
  await expect(restoring).rejects.toThrow(/got .+, expected .+/)
  expect(stateOf(trainer)).toEqual(before)
}

describe('a checkpoint', () => {
  test('is on the disk before its name is, and the name before it is told: files, their folder, and the folder around it', async () => {
    const real = { ...disk }
    const paths = new Map<object, string>()
    const done: string[] = []
    const named = (path: string) => relative(join(run, 'checkpoints'), path).replace(/^\..*\.tmp/, 'temporary') || '.'
    try {
      Object.assign(disk, {
        async open(path: string, flags: Parameters<typeof disk.open>[1]) {
          const handle = await real.open(path, flags)
          paths.set(handle, path)
          return handle
        },
        async sync(handle: Parameters<typeof disk.sync>[0]) {
          await real.sync(handle)
          done.push(`sync ${named(paths.get(handle)!)}`)
        },
        async rename(from: string, to: string) {
          await real.rename(from, to)
          done.push(`rename ${named(from)} ${named(to)}`)
        },
      } satisfies Partial<typeof disk>)
      await writeCheckpoint(run, [tensor(1)], manifest(3))
    } finally {
      Object.assign(disk, real)
    }
    expect(done.filter((each) => /temporary|\.$/.test(each))).toEqual([
      'sync temporary/columns.safetensors',
      'sync temporary/manifest.json',
      'sync temporary',
      'rename temporary 00000003',
      'sync .',
    ])
  })

  test('restores everything that a trainer carries, and what is trained from it has the same bits', async () => {
    const trainer = await smallTrainer()
    await advance(trainer, 3)
    const path = await trainer.save(run)
    const saved = stateOf(trainer)
    expect(path).toBe(place(3))
    const other = await smallTrainer()
    await advance(other, 1)
    expect(await other.restore(run)).toEqual({ warnings: [] })
    expect(stateOf(other)).toEqual(saved)
    await advance(trainer, 2)
    await advance(other, 2)
    expect(stateOf(other).columns).toEqual(stateOf(trainer).columns)
  })

  test('is a folder with the columns and a manifest that says what they are', async () => {
    const trainer = await smallTrainer({ seed: 7 })
    await advance(trainer, 2)
    await trainer.save(run)
    expect((await readdir(place(2))).sort()).toEqual(['columns.safetensors', 'manifest.json'])
    const written = JSON.parse(await readFile(place(2, 'manifest.json'), 'utf8')) as Manifest
    expect(written).toMatchObject({ seed: 7, update: 2, steps: 128, node: process.version })
    expect(written.kernels).toBe(trainer.world.kernelBuild)
    expect(written.cohorts.mlp).toMatchObject({
      environment: { id: 'CartPole-v1', parameters: { maxEpisodeSteps: 500 } },
      policy: { id: 'mlp', parameters: { hidden: [8] } },
      algorithm: { id: 'ppo', parameters: { numSteps: 16 } },
      numLanes: 4,
      version: 2,
      episodes: trainer.progress().episodes,
    })
    expect(written.files).toEqual({ 'columns.safetensors': await sha256(place(2, 'columns.safetensors')) })
  })

  test('is read as the newest, or as that of the update asked for', async () => {
    for (const update of [9, 10, 100]) await writeCheckpoint(run, [tensor(update)], manifest(update))
    expect(await listCheckpoints(run)).toEqual([9, 10, 100])
    expect((await readCheckpoint(run)).manifest.update).toBe(100)
    const { bytes, ...rest } = (await readCheckpoint(run, 9)).tensors.get('numbers')!
    expect({ ...rest, bytes: Uint8Array.from(bytes) }).toEqual(tensor(9))
  })

  test('that is not there is named beside those that are', async () => {
    await expect(readCheckpoint(run)).rejects.toThrow(/got none, expected a run folder with at least one checkpoint/)
    await expect(readCheckpoint(join(run, 'nowhere'))).rejects.toThrow(/got none, expected a run folder/)
    for (const update of [2, 4]) await writeCheckpoint(run, [tensor(1)], manifest(update))
    await expect(readCheckpoint(run, 3)).rejects.toThrow(/got update 3, expected one of 2, 4/)
    await expectRefusal(await smallTrainer(), /got update 3, expected one of 2, 4/, 3)
  })

  test('of a state that is saved already is not written again', async () => {
    const trainer = await smallTrainer()
    await advance(trainer, 1)
    const path = await trainer.save(run)
    await writeFile(join(path, 'witness'), 'would go with a second writing')
    const before = await contents(run)
    expect(await trainer.save(run)).toBe(path)
    expect(await contents(run)).toEqual(before)
  })

  test('of another training under the same number is refused, and the first stays', async () => {
    const [trainer, other] = [await smallTrainer({ seed: 1 }), await smallTrainer({ seed: 2 })]
    for (const each of [trainer, other]) await advance(each, 1)
    await trainer.save(run)
    const before = await contents(run)
    const saving = other.save(run)
    await expect(saving).rejects.toThrow(InputError)
    await expect(saving).rejects.toThrow(/00000001: got a folder that holds a checkpoint of another training, expected/)
    expect(await contents(run)).toEqual(before)
  })

  test('is pruned from the oldest on, by number and not by name', async () => {
    for (const update of [2, 9, 10, 11]) await writeCheckpoint(run, [tensor(1)], manifest(update))
    await pruneCheckpoints(run, 5)
    expect(await listCheckpoints(run)).toEqual([2, 9, 10, 11])
    await pruneCheckpoints(run, 2)
    expect(await listCheckpoints(run)).toEqual([10, 11])
    expect((await readdir(join(run, 'checkpoints'))).sort()).toEqual(['00000010', '00000011'])
  })

  test('of several cohorts restores each, and refuses a world with other cohorts', async () => {
    const make = async (second: string) => {
      const environment = cartPole()
      const cohorts = ['hunter', second].map((name) => ({
        environment,
        policy: mlp({ hidden: [4] }),
        numLanes: 2,
        name,
      }))
      const algorithm = ppo({ numSteps: 8, updateEpochs: 1 })
      return createTrainer(await createWorld({ cohorts, seed: 3 }), { hunter: algorithm, [second]: algorithm })
    }
    const trainer = await make('hare')
    await advance(trainer, 2)
    await trainer.save(run)
    const other = await make('hare')
    await other.restore(run)
    expect(stateOf(other)).toEqual(stateOf(trainer))
    expect(other.progress('hare')).toEqual(trainer.progress('hare'))
    const hounds = await make('hound')
    await expect(hounds.restore(run)).rejects.toThrow(/cohorts: got \["hunter","hare"\], expected \["hunter","hound"\]/)
    expect(hounds.update).toBe(0)
  })

  test('warns of other kernels and of another version of Colonnade, and goes on', async () => {
    const trainer = await smallTrainer()
    await advance(trainer, 1)
    await trainer.save(run)
    await edit(1, (whole) => ({ ...whole, kernels: 'other', colonnade: '0.0.1' }))
    const other = await smallTrainer()
    const { warnings } = await other.restore(run)
    expect(warnings).toHaveLength(2)
    expect(warnings[0]).toContain(`kernels was other and is ${other.world.kernelBuild}`)
    expect(warnings[1]).toMatch(/version of Colonnade was 0\.0\.1 and is /)
    expect(stateOf(other)).toEqual(stateOf(trainer))
  })
})

describe('a checkpoint that is not whole', () => {
  let trainer: Trainer<EpisodeCohort>
  beforeEach(async () => {
    trainer = await smallTrainer()
    await advance(trainer, 1)
    await trainer.save(run)
    await advance(trainer, 1)
  })

  const columns = () => place(1, 'columns.safetensors')

  test.each([
    ['first byte', () => 0],
    ['middle byte', (size: number) => size >> 1],
    ['last byte', (size: number) => size - 1],
  ])('is refused when the %s of its columns has changed', async (_, where) => {
    const bytes = await readFile(columns())
    const at = where(bytes.length)
    bytes[at] = bytes[at]! ^ 1
    await writeFile(columns(), bytes)
    const [got, expected] = [await sha256(columns()), JSON.parse(await readFile(place(1, 'manifest.json'), 'utf8'))]
    await expectRefusal(
      trainer,
      `got columns.safetensors with SHA-256 ${got}, expected ${Object.values(expected.files)}`,
    )
  })

  test('is refused when its columns are cut short, or gone', async () => {
    await truncate(columns(), 1000)
    await expectRefusal(trainer, /SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}.+the file is corrupt/)
    await truncate(columns(), 0)
    await expectRefusal(trainer, /SHA-256/)
    await rm(columns())
    await expectRefusal(trainer, /expected a checkpoint with a columns\.safetensors/)
  })

  test('is refused when its manifest is gone', async () => {
    await rm(place(1, 'manifest.json'))
    await expectRefusal(trainer, /expected a checkpoint with a manifest\.json/)
  })

  test('is refused when its manifest is cut short at any byte', async () => {
    const path = place(1, 'manifest.json')
    const text = await readFile(path, 'utf8')
    for (let size = 0; size < text.trimEnd().length; size += 97) {
      await writeFile(path, text.slice(0, size))
      await expectRefusal(trainer, /got a manifest that is not JSON \(.+\), expected colonnade checkpoint 2/)
    }
  })

  test.each<[string, unknown, RegExp]>([
    ['is null', null, /got format undefined, expected "colonnade checkpoint 2"/],
    ['is a number', 3, /got format undefined, expected "colonnade checkpoint 2"/],
    ['is of no format', {}, /got format undefined, expected "colonnade checkpoint 2"/],
    ['is of a later format', { format: 'colonnade checkpoint 3' }, /got format "colonnade checkpoint 3", expected/],
    ['says nothing but its format', { format: 'colonnade checkpoint 2' }, /checkpoint .+00000001/],
  ])('is refused when its manifest %s', async (_, written, message) => {
    await edit(1, () => written)
    await expectRefusal(trainer, message)
  })

  test.each(['files', 'cohorts', 'update', 'steps', 'seconds', 'seed'] as const)(
    'is refused when its manifest lacks %s',
    async (key) => {
      await edit(1, ({ [key]: _, ...rest }) => rest)
      await expectRefusal(trainer, /checkpoint .+00000001/)
    },
  )

  test('is refused when its manifest was changed anywhere, and names the next older one that is whole', async () => {
    await trainer.save(run)
    const path = place(2, 'manifest.json')
    const whole = await readFile(path)
    for (const [from, to] of [
      ['"steps": 128', '"steps": 126'],
      ['"seed": 1', '"seed": 3'],
      ['"episodes"', '"epizodes"'],
      ['"colonnade checkpoint 2"', '"colonnade checkpoint 1"'],
    ] as const) {
      await writeFile(path, whole.toString().replace(from, to))
      expect(await readFile(path)).not.toEqual(whole)
      await expectRefusal(
        trainer,
        /00000002: got a manifest with SHA-256 .+, expected .+ corrupt; from=1 is the newest whole checkpoint/,
      )
    }
    await truncate(place(1, 'columns.safetensors'), 10)
    await expectRefusal(trainer, /the file is corrupt$/)
    await writeFile(path, whole)
    await (await smallTrainer()).restore(run)
  })

  test.each<[string, unknown, string]>([
    ['update', 3, 'the manifest of update 3, expected that of 1'],
    ['update', -1, 'update -1 in its manifest, expected a whole number ≥ 0'],
    ['steps', 2.5, 'steps 2.5 in its manifest, expected a whole number ≥ 0'],
    ['seconds', -0.25, 'seconds -0.25 in its manifest, expected a number ≥ 0'],
    ['seconds', null, 'seconds null in its manifest, expected a number ≥ 0'],
    ['seed', '1', 'seed "1" in its manifest, expected a whole number ≥ 0'],
    ['episodes', -7, 'episodes of cohort mlp -7 in its manifest, expected a whole number ≥ 0'],
    ['version', 1e300, 'version of cohort mlp 1e+300 in its manifest, expected a whole number ≥ 0'],
    ['numLanes', 0, 'numLanes of cohort mlp 0 in its manifest, expected a whole number ≥ 1'],
    [
      'solvedAtSeconds',
      'early',
      'solvedAtSeconds of cohort mlp "early" in its manifest, expected a number ≥ 0, or null',
    ],
  ])('is refused when it says that %s is %j', async (key, value, message) => {
    await edit(1, (whole) => {
      const cohort = whole.cohorts.mlp!
      return key in whole ? { ...whole, [key]: value } : { ...whole, cohorts: { mlp: { ...cohort, [key]: value } } }
    })
    await expectRefusal(trainer, `got ${message}`)
  })

  test('is read where it was written before manifests had a checksum of their own', async () => {
    const path = place(1, 'manifest.json')
    const { checksum, ...rest } = JSON.parse(await readFile(path, 'utf8'))
    await writeFile(path, JSON.stringify({ ...rest, format: 'colonnade checkpoint 1' }))
    const other = await smallTrainer()
    await other.restore(run)
    expect(other.update).toBe(1)
  })

  test('is refused when its columns are those of another checkpoint', async () => {
    await trainer.save(run)
    await cp(place(2, 'columns.safetensors'), columns())
    await expectRefusal(trainer, /SHA-256/, 1)
  })

  test('does not keep older ones from being restored by number', async () => {
    await trainer.save(run)
    await truncate(place(2, 'columns.safetensors'), 10)
    await expectRefusal(trainer, /SHA-256/)
    const other = await smallTrainer()
    await other.restore(run, 1)
    expect(other.update).toBe(1)
  })
})

describe('a checkpoint of another training', () => {
  beforeEach(async () => {
    const trainer = await smallTrainer()
    await advance(trainer, 1)
    await trainer.save(run)
  })

  test.each<[string, Parameters<typeof smallTrainer>[0], RegExp]>([
    ['seed', { seed: 2 }, /, seed: got 1, expected 2, as in this training/],
    ['number of lanes', { numLanes: 5 }, /, numLanes: got 4, expected 5, as in this training/],
    ['policy', { hidden: [9] }, /, policy.*: got .*\[8\].*, expected .*\[9\].*, as in this training/],
    ['environment', { maxEpisodeSteps: 9 }, /, environment.*: got .*500.*, expected .*9.*, as in this training/],
    ['algorithm', { gamma: 0.5 }, /, algorithm.*: got .+, expected .+, as in this training/],
  ])('is refused for its %s', async (_, options, message) => {
    const trainer = await smallTrainer(options)
    await advance(trainer, 1)
    await expectRefusal(trainer, message)
  })

  test('says in which of many settings the algorithms differ', async () => {
    const restoring = (await smallTrainer({ gamma: 0.5 })).restore(run)
    await expect(restoring).rejects.toThrow(/0\.99/)
    await expect(restoring).rejects.toThrow(/0\.5/)
  })

  test('is refused for an environment of another id', async () => {
    const world = await createWorld({ environment: pendulum(), policy: mlp({ hidden: [8] }), numLanes: 4, seed: 1 })
    const trainer = createTrainer(world, ppo({ numSteps: 16, updateEpochs: 1 }))
    await expectRefusal(trainer, /environment.*: got .*CartPole-v1.*, expected .*Pendulum-v1/)
  })

  test('is refused when its columns do not fit, though its manifest says that they do', async () => {
    const trainer = await smallTrainer()
    const { manifest: written, tensors } = await readCheckpoint(run)
    const { format, files, checksum, ...rest } = written
    const columns = [...tensors.values()]
    await rm(place(1), { recursive: true })
    await writeCheckpoint(run, columns.slice(1), rest)
    await expectRefusal(trainer, `no tensor ${columns[0]!.name}`)
    await rm(place(1), { recursive: true })
    const last = columns.at(-1)!
    await writeCheckpoint(run, [...columns.slice(0, -1), { ...last, shape: [1, ...last.shape] }], rest)
    await expectRefusal(trainer, new RegExp(`${last.name}: got .+ of shape \\[1,.+, expected .+ of shape`))
  })
})

/** Fails before the first update, and leaves trainer and folder as they were. */
async function expectUntrained(trainer: Trainer<EpisodeCohort>, message: RegExp): Promise<void> {
  const [state, files] = [stateOf(trainer), await contents(run)]
  const training = advance(trainer, 1)
  await expect(training).rejects.toThrow(InputError)
  await expect(training).rejects.toThrow(message)
  expect(stateOf(trainer)).toEqual(state)
  expect(await contents(run)).toEqual(files)
}

describe('a trainer with a folder', () => {
  test('keeps its checkpoints there, and goes on from them', async () => {
    const folder = join(run, 'new', 'folder')
    const trainer = await smallTrainer({ folder })
    await advance(trainer, 2)
    expect(await trainer.save()).toBe(join(folder, 'checkpoints', '00000002'))
    await advance(trainer, 1)
    await trainer.save()
    const other = await smallTrainer({ folder })
    expect(await other.restore()).toEqual({ warnings: [] })
    expect(stateOf(other)).toEqual(stateOf(trainer))
    await advance(other, 1)
    await other.save()
    expect(await listCheckpoints(folder)).toEqual([2, 3, 4])
  })

  test.each<[string, Parameters<typeof smallTrainer>[0], RegExp]>([
    ['seed', { seed: 2 }, /00000001, seed: got 1, expected 2, as in this training/],
    ['number of lanes', { numLanes: 5 }, /00000001, numLanes: got 4, expected 5, as in this training/],
    ['policy', { hidden: [9] }, /00000001, policy, hidden: got \[8\], expected \[9\], as in this training/],
    ['environment', { maxEpisodeSteps: 9 }, /00000001, environment, maxEpisodeSteps: got 500, expected 9, as in this/],
    ['algorithm', { gamma: 0.5 }, /00000001, algorithm, gamma: got 0.99, expected 0.5, as in this training/],
  ])('of a training with another %s does not begin to train', async (_, options, message) => {
    const trainer = await smallTrainer()
    await advance(trainer, 1)
    await trainer.save(run)
    await expectUntrained(await smallTrainer({ ...options, folder: run, ifExists: 'refuse' }), message)
  })

  test('does not train what lies there already: it goes on from the newest, or elsewhere', async () => {
    const trainer = await smallTrainer()
    for (let i = 0; i < 3; i++) {
      await advance(trainer, 1)
      await trainer.save(run)
    }
    const other = await smallTrainer({ folder: run, ifExists: 'refuse' })
    const message = (at: number) =>
      new RegExp(
        `^folder: got ${run}, which holds the checkpoint 3 of this training, which stands at ${at}, expected a `,
      )
    await expectUntrained(other, message(0))
    await other.restore(undefined, 2)
    await expectUntrained(other, message(2))
    await other.restore()
    await advance(other, 1)
    expect(other.update).toBe(4)
  })

  test('does not train where a run of another training began, without a checkpoint of it', async () => {
    const definition = await smallRun()
    const { environment, policy, algorithm, settings } = definition
    const { numLanes, seed } = settings
    const begun = join(await temporaryFolder(), 'run')
    await startRun(definition, begun)
    await cp(join(begun, 'config.json'), join(run, 'config.json')) // As a process leaves it that was killed then.
    const options = { environment, policy, numLanes }
    const folder = { folder: run, ifExists: 'refuse' } as const
    const other = createTrainer(await createWorld({ ...options, seed: seed + 1 }), algorithm, folder)
    await expectUntrained(
      other,
      new RegExp(`^run ${run}, seed: got ${seed}, expected ${seed + 1}, as in this training`),
    )
    const faster = createTrainer(await createWorld({ ...options, seed }), ppo({ learningRate: 0.5 }), folder)
    await expectUntrained(faster, /^run .+, algorithm, .+: got .+, expected .+, as in this training/)
    const cohorts = ['one', 'two'].map((name) => ({ name, ...options }))
    const pair = createTrainer(await createWorld({ cohorts, seed }), { one: algorithm }, folder)
    await expectUntrained(pair, /^run .+, number of cohorts: got 1, expected 2, as in this training/)
    const same = createTrainer(await createWorld({ ...options, seed }), algorithm, folder)
    await advance(same, 1)
    expect(same.update).toBe(1)
  })

  test('leaves a config.json of something else alone', async () => {
    await writeFile(join(run, 'config.json'), '{ "name": "mine" }')
    await advance(await smallTrainer({ folder: run }), 1)
  })

  test('does not train for a folder that cannot be written, or whose newest checkpoint is damaged', async () => {
    await writeFile(join(run, 'file'), '')
    await expectUntrained(await smallTrainer({ folder: join(run, 'file', 'below') }), /below/)
    await writeCheckpoint(run, [tensor(1)], manifest(1))
    await writeFile(place(1, 'manifest.json'), '{')
    await expectUntrained(
      await smallTrainer({ folder: run, ifExists: 'refuse' }),
      /00000001: got a manifest that is not JSON/,
    )
  })

  test('is asked for where there is none to save to or restore from', async () => {
    await expect(smallTrainer({ folder: '' })).rejects.toThrow(
      /createTrainer\(.+: got "", expected the path of a folder/,
    )
    const trainer = await smallTrainer()
    await expect(trainer.save()).rejects.toThrow(
      /trainer\.save\(folder\): got no folder, expected the path of a folder/,
    )
    await expect(trainer.restore()).rejects.toThrow(/trainer\.restore\(folder\): got no folder, expected the path/)
  })
})

describe('what an interrupted writing leaves', () => {
  test('is no checkpoint, and goes with the next saving', async () => {
    await writeCheckpoint(run, [tensor(1)], manifest(1))
    const leftover = join(run, 'checkpoints', '.00000002.4711.tmp')
    await mkdir(leftover)
    await writeFile(join(leftover, 'columns.safetensors'), 'half')
    expect(await listCheckpoints(run)).toEqual([1])
    expect((await readCheckpoint(run)).manifest.update).toBe(1)
    await writeCheckpoint(run, [tensor(2)], manifest(2))
    expect((await readdir(join(run, 'checkpoints'))).sort()).toEqual(['00000001', '00000002'])
  })

  test('is nothing when the writing fails', async () => {
    await writeCheckpoint(run, [tensor(1)], manifest(1))
    const broken = { ...tensor(2), bytes: null as unknown as Uint8Array }
    await expect(writeCheckpoint(run, [broken], manifest(2))).rejects.toThrow()
    await rename(join(run, 'checkpoints'), join(run, 'aside'))
    await writeFile(join(run, 'checkpoints'), 'a file where the folder should be')
    const writing = writeCheckpoint(run, [tensor(2)], manifest(2))
    await expect(writing).rejects.toThrow(InputError)
    await rm(join(run, 'checkpoints'))
    await rename(join(run, 'aside'), join(run, 'checkpoints'))
    expect(await readdir(join(run, 'checkpoints'))).toEqual(['00000001'])
  })
})
