/**
 * Checkpoints: folders `checkpoints/<update>/` with the saved columns of a world (`columns.safetensors`) and a
 * `manifest.json` that says what they are and holds their checksum. A checkpoint is written under a temporary name, forced
 * to disk and renamed, so whatever interrupts the writing, every earlier checkpoint is whole and this one is whole or not
 * there.
 */
import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, rename, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import type { DefinitionRecord } from '../definition.ts'
import { InputError, show } from '../errors.ts'
import { cannotWrite, makeFolder, syncFolder, writeSynced } from '../files.ts'
import { decodeSafetensors, encodeSafetensors, type Tensor } from '../safetensors.ts'

const FORMAT = 'colonnade checkpoint 1'
const COLUMNS_FILE = 'columns.safetensors'
const MANIFEST_FILE = 'manifest.json'

/** What a checkpoint says of one cohort. */
export interface CohortRecord {
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly algorithm: DefinitionRecord
  readonly numLanes: number
  /** Number of the first lane in the whole run. */
  readonly firstLane: number
  readonly autoreset: string
  readonly explore: boolean
  /** Number of the weights. */
  readonly version: number
  /** Episodes finished so far. */
  readonly episodes: number
  readonly solvedAtStep: number | null
  readonly solvedAtSeconds: number | null
}

/** What a checkpoint says of a trainer of language models; `update` counts its ticks and optimizer steps. */
export interface TextRecord {
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly sft: DefinitionRecord | null
  readonly rl: DefinitionRecord | null
  readonly numLanes: number
  readonly sftSteps: number
  readonly rlUpdates: number
  /** Number of the weights. */
  readonly version: number
  readonly ticks: number
  /** The trajectories are those of an update that is done. */
  readonly isBetweenUpdates: boolean
  /** How many conversations may begin, of all that ever did. */
  readonly released: number
  /** Groups dropped for this update, by reason; and the numbers of those that were judged and kept. */
  readonly drops: Readonly<Record<string, number>>
  readonly admitted: readonly number[]
  /** What was said in each lane before the model's turn. */
  readonly histories: readonly (readonly { readonly role: string; readonly content: string }[])[]
  /** From which tokens those said in each lane were drawn, where a filter had left some out. */
  readonly supports: readonly (readonly number[])[]
  /** What its trajectories are from. */
  readonly source: string
  /** The conversations of this update that are over, without their tokens, which are tensors. */
  readonly trajectories: readonly object[]
}

/** What a checkpoint says of the whole. */
export interface Manifest {
  readonly format: string
  readonly colonnade: string
  readonly node: string
  /** The kernel build, on which the bits of a run depend. */
  readonly kernels: string
  readonly seed: number
  /** Updates done. */
  readonly update: number
  /** Environment steps done. */
  readonly steps: number
  /** Seconds of training. */
  readonly seconds: number
  readonly cohorts: Readonly<Record<string, CohortRecord>>
  /** Of a trainer of language models: where it stands beside its columns. */
  readonly text?: TextRecord
  /** SHA-256 of each file, in hexadecimal. */
  readonly files: Readonly<Record<string, string>>
}

export interface Checkpoint {
  readonly path: string
  readonly manifest: Manifest
  readonly tensors: ReadonlyMap<string, Tensor>
}

/** The folder in which a run keeps its checkpoints. */
export function checkpointsFolder(run: string): string {
  return join(run, 'checkpoints')
}

/** The updates of which a run folder holds a checkpoint, rising. */
export async function listCheckpoints(run: string): Promise<number[]> {
  let names: string[]
  try {
    names = await readdir(checkpointsFolder(run))
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw new InputError(run, (cause as Error).message, 'a run folder that can be read', { cause })
  }
  return names
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .sort((a, b) => a - b)
}

/**
 * Writes a checkpoint of the run and returns its path. Writing the same state again does nothing.
 * @throws InputError if the folder cannot be written, or holds another state under this number.
 */
export async function writeCheckpoint(
  run: string,
  tensors: readonly Tensor[],
  manifest: Omit<Manifest, 'format' | 'files'>,
): Promise<string> {
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
  const whole: Manifest = { format: FORMAT, ...manifest, files: { [COLUMNS_FILE]: checksum } }
  try {
    await makeFolder(folder)
    for (const stale of await readdir(folder)) {
      if (stale.endsWith('.tmp')) await rm(join(folder, stale), { recursive: true, force: true })
    }
    await mkdir(temporary)
    await writeSynced(join(temporary, COLUMNS_FILE), chunks)
    await writeSynced(join(temporary, MANIFEST_FILE), [Buffer.from(`${JSON.stringify(whole, null, 2)}\n`)])
    await syncFolder(temporary)
    await rename(temporary, path)
    await syncFolder(folder)
  } catch (cause) {
    await rm(temporary, { recursive: true, force: true }).catch(() => undefined) // The first error is the one to report.
    throw cannotWrite(path, cause)
  }
  return path
}

/** Removes all but the newest `kept` checkpoints. */
export async function pruneCheckpoints(run: string, kept: number): Promise<void> {
  const updates = await listCheckpoints(run)
  for (const update of updates.slice(0, Math.max(0, updates.length - kept))) {
    const path = checkpointPath(run, update)
    const doomed = join(checkpointsFolder(run), `.${basename(path)}.tmp`) // Gone from the list at once, and whole till then.
    await rename(path, doomed)
    await rm(doomed, { recursive: true })
  }
}

/**
 * Reads and checks a checkpoint: the newest, or that of the given update.
 * @throws InputError if there is none, or it is not whole, or not of this format.
 */
export async function readCheckpoint(run: string, update?: number): Promise<Checkpoint> {
  const updates = await listCheckpoints(run)
  const chosen = update ?? updates.at(-1)
  if (chosen === undefined || !updates.includes(chosen)) {
    throw new InputError(
      `checkpoint of ${run}`,
      updates.length === 0 ? 'none' : `update ${chosen}`,
      updates.length === 0 ? 'a run folder with at least one checkpoint' : `one of ${updates.join(', ')}`,
    )
  }
  const path = checkpointPath(run, chosen)
  const manifest = parseManifest(path, await readPart(path, MANIFEST_FILE))
  const file = await readPart(path, COLUMNS_FILE)
  const checksum = sha256([file])
  if (checksum !== manifest.files[COLUMNS_FILE]) {
    throw new InputError(
      `checkpoint ${path}`,
      `${COLUMNS_FILE} with SHA-256 ${checksum}`,
      `${manifest.files[COLUMNS_FILE]}, as its manifest says: the file is corrupt`,
    )
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
  if (manifest?.format !== FORMAT) {
    throw new InputError(`checkpoint ${path}`, `format ${JSON.stringify(manifest?.format)}`, JSON.stringify(FORMAT))
  }
  const kinds = {
    update: 'number',
    steps: 'number',
    seconds: 'number',
    seed: 'number',
    cohorts: 'object',
    files: 'object',
  }
  for (const [key, kind] of Object.entries(kinds)) {
    const value = manifest[key as keyof Manifest]
    if (typeof value !== kind || value === null) {
      throw new InputError(
        `checkpoint ${path}`,
        `${key} ${show(value)} in its manifest`,
        `${kind === 'number' ? 'a' : 'an'} ${kind}`,
      )
    }
  }
  return manifest
}

async function readPart(path: string, name: string): Promise<Uint8Array> {
  try {
    return await readFile(join(path, name))
  } catch (cause) {
    throw new InputError(`checkpoint ${path}`, (cause as Error).message, `a checkpoint with a ${name}`, { cause })
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
