import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { IfExists } from '../../src/entries/data.ts'
import {
  cartPole,
  configureRun,
  createTrainer,
  createWorld,
  type EpisodeCohort,
  mlp,
  ppo,
  type Trainer,
} from '../../src/index.ts'
import { listCheckpoints, type Manifest, sealManifest } from '../../src/training/folder/checkpoint.ts'
import { savedTensors } from '../../src/training/folder/snapshot.ts'
import { SMALL } from './command.ts'

/** A short training of CartPole: 64 steps per update. */
export async function smallTrainer(
  options: {
    seed?: number
    numLanes?: number
    hidden?: number[]
    gamma?: number
    maxEpisodeSteps?: number
    folder?: string
    ifExists?: IfExists
  } = {},
): Promise<Trainer<EpisodeCohort>> {
  const {
    seed = 1,
    numLanes = 4,
    hidden = [8],
    gamma = 0.99,
    maxEpisodeSteps = 500,
    folder,
    ifExists = 'number',
  } = options
  const world = await createWorld({
    environment: cartPole({ maxEpisodeSteps }),
    policy: mlp({ hidden }),
    numLanes,
    seed,
  })
  const algorithm = ppo({ numSteps: 16, updateEpochs: 1, gamma })
  return createTrainer(world, algorithm, folder === undefined ? {} : { folder, ifExists })
}

/** Trains this many further updates. */
export async function advance(trainer: Trainer<EpisodeCohort>, updates: number): Promise<void> {
  if (updates > 0) await advanceTo(trainer, trainer.update + updates)
}

/** Trains up to an update, and calls `after` after each, the last included. */
export async function advanceTo(
  trainer: Trainer<EpisodeCohort>,
  until: number,
  after?: (update: number) => void,
): Promise<void> {
  for await (const { update } of trainer.updates({ totalSteps: 1e9 })) {
    after?.(update)
    if (update === until) break
  }
}

/** Every saved column of a trainer's world, and those of its last rollout, as text. */
export function columnsOf({ world }: Trainer<EpisodeCohort>) {
  return world
    .columns()
    .filter(({ planned: { name, saved } }) => saved || /\.(rollout|recorded)\.|\.league\.acted$/.test(name))
    .map(({ planned, column }) => [planned.name, Buffer.from(column.slice().buffer).toString('base64')])
}

/** A trainer's whole state between updates. */
export function stateOf(trainer: Trainer<EpisodeCohort>) {
  const { update, steps, seconds } = trainer
  const columns = savedTensors(trainer.world).map(({ name, bytes }) => [name, Buffer.from(bytes).toString('base64')])
  return {
    update,
    steps,
    seconds,
    progress: Object.keys(trainer.rollouts).map((name) => trainer.progress(name)),
    columns,
  }
}

/** The definition of a run of 8 updates, with settings as on the command line. */
export function smallRun(...words: string[]) {
  const texts = [...SMALL, ...words].map((word) => /^([^=]*)=(.*)$/s.exec(word)!.slice(1))
  return configureRun('CartPole-v1', Object.fromEntries(texts))
}

export async function sha256(path: string): Promise<string> {
  return createHash('sha256')
    .update(await readFile(path))
    .digest('hex')
}

/** The metrics of metrics.jsonl without times, one line each. */
export async function untimedMetrics(run: string) {
  const text = await readFile(join(run, 'metrics.jsonl'), 'utf8')
  return text
    .trimEnd()
    .split('\n')
    .map((line) => {
      const { seconds, stepsPerSecond, rolloutSeconds, updateSeconds, phaseSeconds, ...untimed } = JSON.parse(line)
      return untimed
    })
}

/** What must be equal in two equal runs: hashes of the newest checkpoint and rollout, and metrics. */
export async function fingerprint(run: string) {
  const newest = String((await listCheckpoints(run)).at(-1)).padStart(8, '0')
  return {
    newest,
    checkpoint: await sha256(join(run, 'checkpoints', newest, 'columns.safetensors')),
    rollout: await sha256(join(run, 'rollouts', `${newest}.arrow`)),
    metrics: await untimedMetrics(run),
  }
}

/** Changes a checkpoint's manifest, and recomputes its checksum. */
export async function editManifest(path: string, change: (manifest: Manifest) => unknown): Promise<void> {
  const edited = change(JSON.parse(await readFile(path, 'utf8')))
  const isManifest = typeof edited === 'object' && edited !== null
  await writeFile(path, JSON.stringify(isManifest ? sealManifest(edited as Manifest) : edited))
}
