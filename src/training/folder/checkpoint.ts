/**
 * Checkpoints: folders `checkpoints/<update>/` with the saved columns of a world (`columns.safetensors`) and a
 * `manifest.json` that says what they are, and holds their checksum and its own. A checkpoint is written under a temporary
 * name, forced to disk and renamed, so whatever interrupts the writing, every earlier checkpoint is whole and this one is
 * whole or not there. What a training backend keeps in files of its own, `checkpoints/<update>.<cohort>`, is written before.
 */
import { createHash } from 'node:crypto'
import { basename, join } from 'node:path'
import type { DefinitionRecord } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import {
  cannotWrite,
  disk,
  listFolder,
  makeFolder,
  readWhole,
  refuseDeep,
  syncFolder,
  within,
  writeSynced,
} from '../../base/files/files.ts'
import { decodeSafetensors, encodeSafetensors, type Tensor } from '../../base/files/safetensors.ts'
import type { ModuleTrust } from '../../base/trust.ts'
import type { SavedAdmission } from '../../fleet/admission.ts'
import type { TurnDrawing } from '../../language/turn-sampling.ts'
import type { SelfPlayOptions } from '../../world/episodes/self-play.ts'
import type { SavedCollector } from '../loop/collector.ts'
import { asOwner } from './owner.ts'

const FORMAT = 'colonnade checkpoint 2'
/** Its manifests have no checksum of their own. */
const FIRST_FORMAT = 'colonnade checkpoint 1'
const CHECKPOINTS = 'checkpoints'
const COLUMNS_FILE = 'columns.safetensors'
const MANIFEST_FILE = 'manifest.json'

/** What a checkpoint says of one cohort. */
export type CohortRecord = EpisodeRecord | ConversationRecord

/** What a checkpoint says of a cohort of episodes. */
export interface EpisodeRecord {
  readonly kind: 'episodes'
  /** Updates and environment steps done, by all cohorts of episodes, and the seconds that they took. */
  readonly update: number
  readonly steps: number
  readonly seconds: number
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly algorithm: DefinitionRecord
  readonly numLanes: number
  /** Number of the first lane in the whole run. */
  readonly firstLane: number
  /** Keys its random numbers; absent where the world's does. */
  readonly seed?: number
  readonly autoreset: string
  readonly explore: boolean
  /** Systems of one's own; absent where there are none. */
  readonly systems?: readonly DefinitionRecord[]
  /** Number of the weights. */
  readonly version: number
  /** Episodes finished so far. */
  readonly episodes: number
  readonly solvedAtStep: number | null
  readonly solvedAtSeconds: number | null
  /** How lanes play against earlier selves; absent where they do not. */
  readonly selfPlay?: SelfPlayOptions
  /** The same of each further set of weights that learns; absent where there is none. */
  readonly learningSets?: readonly Pick<EpisodeRecord, 'episodes' | 'solvedAtStep' | 'solvedAtSeconds'>[]
}

/** What a checkpoint says of a cohort of conversations. */
export interface ConversationRecord extends Omit<SavedCollector, 'admission'> {
  readonly kind: 'conversations'
  readonly seconds: number
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly sft: DefinitionRecord | null
  readonly rl: DefinitionRecord | null
  readonly numLanes: number
  /** What a conversation's reward is of its turns'. */
  readonly rewardReduction: string
  readonly sftSteps: number
  readonly rlUpdates: number
  /** Number of the weights. */
  readonly version: number
  /** The groups between those who sample and those who learn; null where nothing is sampled. */
  readonly admission: SavedAdmission | null
  /** What was said in each lane before the model's turn. */
  readonly histories: readonly (readonly { readonly role: string; readonly content: string | null }[])[]
  /** Of each lane, how turns were drawn that are not as the cohort's, with their numbers. Not in older ones. */
  readonly drawings?: readonly (readonly (readonly [turn: number, drawing: TurnDrawing])[])[]
  /** The lanes that leave when their conversations are over; absent where none does. */
  readonly leaving?: readonly number[]
  /** From which tokens those said in each lane were drawn, where a filter had left some out. */
  readonly candidates: readonly (readonly number[])[]
  /** The last reply to each lane whose conversation is over and waits for room in the log; null for others. Not in older ones. */
  readonly replies?: readonly (object | null)[]
  /** What its trajectories are from. */
  readonly source: string
  /** The conversations of this update that are over, without their tokens, which are tensors. */
  readonly trajectories: readonly object[]
  /** Likewise, the segments before the one that it is in of each lane's conversation. */
  readonly segments: readonly object[]
}

/** Where a backend has kept what is in no column. */
export interface BackendRecord {
  readonly id: string
  /** The name by which the backend finds it; null for the checkpoint's own path and the cohort's name behind it. */
  readonly name: string | null
}

/** What a checkpoint says of the whole. */
export interface Manifest {
  readonly format: string
  readonly colonnade: string
  readonly node: string
  /** The kernel build, on which the bits of a run depend. */
  readonly kernels: string
  /** Of native kernels their level and where they come from; null of others, absent where nobody recorded it. */
  readonly native?: string | null
  readonly seed: number
  /** The checkpoint's number: updates done, and of conversations ticks too. */
  readonly update: number
  /** Environment steps done, and ticks of conversations. */
  readonly steps: number
  /** Seconds of training. */
  readonly seconds: number
  readonly cohorts: Readonly<Record<string, CohortRecord>>
  /** Of the cohorts whose backend keeps anything outside the columns; absent where there are none. */
  readonly backends?: Readonly<Record<string, BackendRecord>>
  /** SHA-256 of each file, in hexadecimal. */
  readonly files: Readonly<Record<string, string>>
  /** SHA-256 of this manifest's JSON without it. */
  readonly checksum: string
}

/** Which of a run's checkpoints is loaded, and which of its modules may be run. */
export interface LoadOptions extends ModuleTrust {
  /** The number of the checkpoint; the newest where it is not given. */
  readonly from?: number | undefined
}

export interface Checkpoint {
  readonly path: string
  readonly manifest: Manifest
  readonly tensors: ReadonlyMap<string, Tensor>
}

/** The folder in which a run keeps its checkpoints. */
export function checkpointsFolder(run: string): string {
  return join(run, CHECKPOINTS)
}

/** The updates of which a run folder holds a checkpoint, rising. @throws InputError if it cannot be read. */
export async function listCheckpoints(run: string): Promise<number[]> {
  return (await listFolder(await within(run, CHECKPOINTS)))
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .sort((a, b) => a - b)
}

/**
 * Writes a checkpoint of the run and returns its path. Writing the same state again does nothing. `keepBackends` is given the path
 * and lets backends keep their part beside it, before the checkpoint is there.
 * @throws InputError if the folder cannot be written, or holds another state under this number.
 */
export async function writeCheckpoint(
  run: string,
  tensors: readonly Tensor[],
  manifest: Omit<Manifest, 'format' | 'backends' | 'files' | 'checksum'>,
  keepBackends: (path: string) => Promise<Manifest['backends']> = async () => undefined,
): Promise<string> {
  return asOwner(run, async () => {
    const folder = checkpointsFolder(run)
    const path = checkpointPath(run, manifest.update)
    const temporary = join(folder, `.${basename(path)}.${process.pid}.tmp`)
    const chunks = encodeSafetensors(tensors)
    const checksum = sha256(chunks)
    if ((await listCheckpoints(run)).includes(manifest.update)) {
      const existing = await readCheckpoint(run, manifest.update)
      if (existing.manifest.files[COLUMNS_FILE] === checksum) return path
      throw new InputError(path, 'a folder that holds a checkpoint of another training', 'a new run folder')
    }
    await makeFolder(folder).catch((cause) => {
      throw cannotWrite(path, cause)
    })
    const backends = await keepBackends(path)
    const files = { [COLUMNS_FILE]: checksum }
    const whole = sealManifest({ format: FORMAT, ...manifest, ...(backends && { backends }), files })
    try {
      await disk.makeFolder(temporary)
      await writeSynced(join(temporary, COLUMNS_FILE), chunks)
      await writeSynced(join(temporary, MANIFEST_FILE), [`${JSON.stringify(whole, null, 2)}\n`])
      await syncFolder(temporary)
      await disk.rename(temporary, path)
      await syncFolder(folder)
    } catch (cause) {
      await disk.remove(temporary).catch(() => undefined) // The first error is the one to report.
      throw cannotWrite(path, cause)
    }
    return path
  })
}

/** The manifest with its own checksum: that of its JSON without it. */
export function sealManifest(manifest: Omit<Manifest, 'checksum'> & { readonly checksum?: string }): Manifest {
  const { checksum: _, ...rest } = manifest
  return { ...rest, checksum: sha256([Buffer.from(JSON.stringify(rest))]) }
}

/** Removes all but the newest `kept` checkpoints, and the one that is spared. */
export async function pruneCheckpoints(run: string, kept: number, spared?: number): Promise<void> {
  const updates = await listCheckpoints(run)
  const oldest = updates.slice(0, Math.max(0, updates.length - kept))
  await removeCheckpoints(run, (update) => update !== spared && oldest.includes(update))
}

/** Removes the checkpoints of the updates that are meant. */
export async function removeCheckpoints(run: string, isMeant: (update: number) => boolean): Promise<void> {
  const meant = (await listCheckpoints(run)).filter(isMeant)
  if (meant.length === 0) return
  await asOwner(run, async () => {
    try {
      for (const update of meant) {
        const path = checkpointPath(run, update)
        const doomed = join(checkpointsFolder(run), `.${basename(path)}.tmp`) // Gone from the list at once, and whole till then.
        await disk.rename(path, doomed)
        await disk.remove(doomed)
        for (const name of await listFolder(checkpointsFolder(run))) {
          if (name.startsWith(`${basename(path)}.`)) await disk.remove(join(checkpointsFolder(run), name))
        }
      }
    } catch (cause) {
      throw cannotWrite(checkpointsFolder(run), cause)
    }
  })
}

/**
 * Reads and checks a checkpoint: the newest, or that of the given update.
 * @throws InputError if there is none, or it is not whole, or not of this format. Where the newest is damaged it names the next
 * older one that is whole.
 */
export async function readCheckpoint(run: string, update?: number): Promise<Checkpoint> {
  const updates = await listCheckpoints(run)
  const chosen = update ?? updates.at(-1)
  if (chosen === undefined || !updates.includes(chosen)) {
    const expected = updates.length === 0 ? 'a run folder with at least one checkpoint' : `one of ${updates.join(', ')}`
    throw new InputError(`checkpoint of ${run}`, updates.length === 0 ? 'none' : `update ${chosen}`, expected)
  }
  try {
    return await readOne(run, chosen)
  } catch (cause) {
    if (update !== undefined || !(cause instanceof InputError)) throw cause
    for (const older of updates.slice(0, -1).reverse()) {
      const isWhole = await readOne(run, older).then(
        () => true,
        () => false, // Named is one that can be taken.
      )
      if (!isWhole) continue
      const { subject, got, expected } = cause
      const hint = `${expected}; whole is the checkpoint of ${older}, taken with from=${older}`
      throw new InputError(subject, got, hint, { cause })
    }
    throw cause
  }
}

/**
 * Reads what the checkpoint of an update says of itself, and leaves its columns alone.
 * @throws InputError if there is no such manifest, or it is damaged.
 */
export async function readManifest(run: string, update: number): Promise<Omit<Checkpoint, 'tensors'>> {
  const path = checkpointPath(run, update)
  const manifest = parseManifest(path, await readPart(run, update, MANIFEST_FILE))
  if (manifest.update !== update) {
    throw new InputError(`checkpoint ${path}`, `the manifest of update ${manifest.update}`, `that of ${update}`)
  }
  return { path, manifest }
}

async function readOne(run: string, update: number): Promise<Checkpoint> {
  const { path, manifest } = await readManifest(run, update)
  const file = await readPart(run, update, COLUMNS_FILE)
  const checksum = sha256([file])
  if (checksum !== manifest.files[COLUMNS_FILE]) {
    const expected = `${manifest.files[COLUMNS_FILE]}, as its manifest says: the file is corrupt`
    throw new InputError(`checkpoint ${path}`, `${COLUMNS_FILE} with SHA-256 ${checksum}`, expected)
  }
  return { path, manifest, tensors: decodeSafetensors(`checkpoint ${path}`, file).tensors }
}

function parseManifest(path: string, bytes: Uint8Array): Manifest {
  let manifest: Manifest
  try {
    manifest = JSON.parse(Buffer.from(bytes).toString()) as Manifest
  } catch (cause) {
    throw new InputError(`checkpoint ${path}`, `a manifest that is not JSON (${(cause as Error).message})`, FORMAT, {
      cause,
    })
  }
  refuseDeep(`checkpoint ${path}`, manifest)
  if (manifest?.format !== FORMAT && manifest?.format !== FIRST_FORMAT) {
    throw new InputError(`checkpoint ${path}`, `format ${JSON.stringify(manifest?.format)}`, JSON.stringify(FORMAT))
  }
  const { checksum } = sealManifest(manifest)
  if (manifest.checksum !== checksum && (manifest.format === FORMAT || 'checksum' in manifest)) {
    const got = `a manifest with SHA-256 ${checksum}`
    throw new InputError(`checkpoint ${path}`, got, `${show(manifest.checksum)}, as it says: the file is corrupt`)
  }
  checkFields(path, '', manifest, MANIFEST_FIELDS)
  for (const [name, backend] of Object.entries(manifest.backends ?? {})) {
    checkFields(path, ` of the backend of cohort ${name}`, backend, BACKEND_FIELDS)
  }
  for (const [name, cohort] of Object.entries(manifest.cohorts)) {
    checkFields(path, ` of cohort ${name}`, cohort, KIND_FIELDS)
    checkFields(path, ` of cohort ${name}`, cohort, RECORD_FIELDS[cohort.kind])
  }
  return manifest
}

/** What a field of a manifest may be, in words and as a check. */
type Field = readonly [expected: string, accepts: (value: unknown) => boolean]

const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0
const isTime = (value: unknown) => typeof value === 'number' && Number.isFinite(value) && value >= 0
const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value)
const count: Field = ['a whole number ≥ 0', isCount]
const time: Field = ['a number ≥ 0', isTime]
const object: Field = ['an object', isObject]
const flag: Field = ['true or false', (value) => typeof value === 'boolean']
const text: Field = ['a text', (value) => typeof value === 'string']
const list: Field = ['a list', Array.isArray]

function orNull([expected, accepts]: Field): Field {
  return [`${expected}, or null`, (value) => value === null || accepts(value)]
}

const MANIFEST_FIELDS = { update: count, steps: count, seconds: time, seed: count, cohorts: object, files: object }
const EPISODE_FIELDS = {
  update: count,
  steps: count,
  seconds: time,
  environment: object,
  policy: object,
  algorithm: object,
  numLanes: ['a whole number ≥ 1', (value: unknown) => isCount(value) && value !== 0] as Field,
  firstLane: count,
  version: count,
  episodes: count,
  solvedAtStep: orNull(count),
  solvedAtSeconds: orNull(time),
}
const CONVERSATION_FIELDS = {
  seconds: time,
  environment: object,
  policy: object,
  sft: orNull(object),
  rl: orNull(object),
  numLanes: EPISODE_FIELDS.numLanes,
  sftSteps: count,
  rlUpdates: count,
  version: count,
  ticks: count,
  isBetweenUpdates: flag,
  released: count,
  source: text,
  admission: orNull(object),
  delivery: orNull(object),
  ages: list,
  histories: list,
  candidates: list,
  trajectories: list,
}
const BACKEND_FIELDS = { id: text, name: orNull(text) }
const RECORD_FIELDS = { episodes: EPISODE_FIELDS, conversations: CONVERSATION_FIELDS }
const KIND_FIELDS = {
  kind: ['episodes or conversations', (value: unknown) => value === 'episodes' || value === 'conversations'] as Field,
}

function checkFields(path: string, of: string, record: object, fields: Readonly<Record<string, Field>>): void {
  for (const [key, [expected, accepts]] of Object.entries(fields)) {
    const value = (record as Record<string, unknown> | null)?.[key]
    if (!accepts(value))
      throw new InputError(`checkpoint ${path}`, `${key}${of} ${show(value)} in its manifest`, expected)
  }
}

async function readPart(run: string, update: number, name: string): Promise<Uint8Array> {
  const path = checkpointPath(run, update)
  try {
    return await readWhole(await within(run, CHECKPOINTS, basename(path), name), `a checkpoint with a ${name}`)
  } catch (cause) {
    const { got, expected } = cause as InputError
    throw new InputError(`checkpoint ${path}`, got, expected, { cause })
  }
}

function sha256(chunks: readonly Uint8Array[]): string {
  const hash = createHash('sha256')
  for (const chunk of chunks) hash.update(chunk)
  return hash.digest('hex')
}

function checkpointPath(run: string, update: number): string {
  return join(checkpointsFolder(run), String(update).padStart(8, '0'))
}
