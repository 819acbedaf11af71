/**
 * Checkpoints: folders `checkpoints/<update>/` with a world's saved columns (`columns.safetensors`) and a
 * `manifest.json`, which describes them and has their checksum and its own. A checkpoint is written under a temporary
 * name, synced to disk and renamed, so an interruption leaves every earlier checkpoint whole, and this one whole or
 * absent. Files of a training backend, `checkpoints/<update>.<cohort>`, are written before.
 */
import type { DefinitionRecord } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import { sha256 as digest } from '../../base/files/digest.ts'
import {
  cannotWrite,
  decodeText,
  disk,
  listFolder,
  makeFolder,
  readWhole,
  refuseDeep,
  syncFolder,
  within,
  writeSynced,
} from '../../base/files/files.ts'
import { basename, join } from '../../base/files/path.ts'
import { decodeSafetensors, encodeSafetensors, type Tensor } from '../../base/files/safetensors.ts'
import { processNumber } from '../../base/host.ts'
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

export type CohortRecord = EpisodeRecord | ConversationRecord

/** A cohort of episodes in a checkpoint. */
export interface EpisodeRecord {
  readonly kind: 'episodes'
  /** Updates and environment steps of all cohorts of episodes, and their seconds. */
  readonly update: number
  readonly steps: number
  readonly seconds: number
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly algorithm: DefinitionRecord
  readonly numLanes: number
  readonly firstLane: number
  /** Keys its random numbers; absent if the world's seed does. */
  readonly seed?: number
  readonly autoreset: string
  readonly explore: boolean
  /** The user's systems; absent if there are none. */
  readonly systems?: readonly DefinitionRecord[]
  readonly version: number
  readonly episodes: number
  readonly solvedAtStep: number | null
  readonly solvedAtSeconds: number | null
  /** Self-play against earlier weights; absent without it. */
  readonly selfPlay?: SelfPlayOptions
  /** The same for each further set of trained weights; absent without any. */
  readonly learningSets?: readonly Pick<EpisodeRecord, 'episodes' | 'solvedAtStep' | 'solvedAtSeconds'>[]
}

/** A cohort of conversations in a checkpoint. */
export interface ConversationRecord extends Omit<SavedCollector, 'admission'> {
  readonly kind: 'conversations'
  readonly seconds: number
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly sft: DefinitionRecord | null
  readonly rl: DefinitionRecord | null
  readonly numLanes: number
  /** How a conversation's reward is computed from its turns'. */
  readonly rewardReduction: string
  readonly sftSteps: number
  readonly rlUpdates: number
  readonly version: number
  /** The groups between sampling and training; null if nothing is sampled. */
  readonly admission: SavedAdmission | null
  /** The messages in each lane before the model's turn. */
  readonly histories: readonly (readonly { readonly role: string; readonly content: string | null }[])[]
  /** For each lane, turns that were not sampled as the cohort's, with their numbers. Absent in older checkpoints. */
  readonly drawings?: readonly (readonly (readonly [turn: number, drawing: TurnDrawing])[])[]
  /** The lanes that leave when their conversations end; absent if none does. */
  readonly leaving?: readonly number[]
  /** The candidate sets of each lane's tokens, if a filter excluded some. */
  readonly candidates: readonly (readonly number[])[]
  /** The last reply to each lane that waits for room in the log, or null. Absent in older checkpoints. */
  readonly replies?: readonly (object | null)[]
  readonly source: string
  /** This update's finished conversations, without their tokens, which are tensors. */
  readonly trajectories: readonly object[]
  /** Likewise the finished segments of each lane's running conversation. */
  readonly segments: readonly object[]
}

/** Where a backend keeps state outside of columns. */
export interface BackendRecord {
  readonly id: string
  /** The backend's name for it; null for the checkpoint's path plus the cohort's name. */
  readonly name: string | null
}

export interface Manifest {
  readonly format: string
  readonly colonnade: string
  readonly node: string
  /** The kernel build, on which a run's bits depend. */
  readonly kernels: string
  /** Level and origin of native kernels; null for others, absent if not recorded. */
  readonly native?: string | null
  readonly seed: number
  /** The checkpoint's number: updates done, and for conversations ticks too. */
  readonly update: number
  /** Environment steps, and ticks of conversations. */
  readonly steps: number
  readonly seconds: number
  readonly cohorts: Readonly<Record<string, CohortRecord>>
  /** Cohorts whose backend keeps state outside of columns; absent without any. */
  readonly backends?: Readonly<Record<string, BackendRecord>>
  /** SHA-256 of each file, in hexadecimal. */
  readonly files: Readonly<Record<string, string>>
  /** SHA-256 of this manifest's JSON without it. */
  readonly checksum: string
}

/** Which checkpoint to load, and which modules may run. */
export interface LoadOptions extends ModuleTrust {
  /** The checkpoint's number; default the newest. */
  readonly from?: number | undefined
}

export interface Checkpoint {
  readonly path: string
  readonly manifest: Manifest
  readonly tensors: ReadonlyMap<string, Tensor>
}

export function checkpointsFolder(run: string): string {
  return join(run, CHECKPOINTS)
}

/** The updates with a checkpoint in a run folder, ascending. @throws InputError if it cannot be read. */
export async function listCheckpoints(run: string): Promise<number[]> {
  return (await listFolder(await within(run, CHECKPOINTS)))
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .sort((a, b) => a - b)
}

/**
 * Writes a checkpoint of the run and returns its path. Writing the same state again does nothing. `keepBackends` gets
 * the path and saves the backends' state beside it, before the checkpoint appears.
 * @throws InputError if the folder cannot be written, or has another state under this number.
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
    const temporary = join(folder, `.${basename(path)}.${processNumber}.tmp`)
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

/** Adds a manifest's own checksum: that of its JSON without it. */
export function sealManifest(manifest: Omit<Manifest, 'checksum'> & { readonly checksum?: string }): Manifest {
  const { checksum: _, ...rest } = manifest
  return { ...rest, checksum: sha256([new TextEncoder().encode(JSON.stringify(rest))]) }
}

/** Removes all but the newest `kept` checkpoints and the spared one. */
export async function pruneCheckpoints(run: string, kept: number, spared?: number): Promise<void> {
  const updates = await listCheckpoints(run)
  const oldest = updates.slice(0, Math.max(0, updates.length - kept))
  await removeCheckpoints(run, (update) => update !== spared && oldest.includes(update))
}

export async function removeCheckpoints(run: string, isMeant: (update: number) => boolean): Promise<void> {
  const meant = (await listCheckpoints(run)).filter(isMeant)
  if (meant.length === 0) return
  await asOwner(run, async () => {
    try {
      for (const update of meant) {
        const path = checkpointPath(run, update)
        const doomed = join(checkpointsFolder(run), `.${basename(path)}.tmp`) // Renaming removes it from the list at once, and whole.
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
 * Reads and checks a checkpoint: the newest, or the one of the given update.
 * @throws InputError if there is none, or it is damaged or of another format. If the newest is damaged, the error names
 * the newest whole one before it.
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
        () => false, // Only a whole one is suggested.
      )
      if (!isWhole) continue
      const { subject, got, expected } = cause
      const hint = `${expected}; from=${older} is the newest whole checkpoint`
      throw new InputError(subject, got, hint, { cause })
    }
    throw cause
  }
}

/** Reads a checkpoint's manifest without its columns. @throws InputError for a missing or damaged manifest. */
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
    manifest = JSON.parse(decodeText(bytes)) as Manifest
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

/** The valid values of a manifest's field, as text and as a check. */
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
  const whole = digest()
  for (const chunk of chunks) whole.update(chunk)
  return whole.hex()
}

function checkpointPath(run: string, update: number): string {
  return join(checkpointsFolder(run), String(update).padStart(8, '0'))
}
