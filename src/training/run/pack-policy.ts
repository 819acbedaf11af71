/** Packs the policy of a run: a run folder with nothing but its settings and the weights of one checkpoint. */
import { InputError } from '../../base/errors.ts'
import { isThere, listFolder, makeFolder, writeWhole } from '../../base/files/files.ts'
import { join } from '../../base/files/path.ts'
import { tensorOf, tensorValues } from '../../base/files/safetensors.ts'
import { type LoadOptions, readCheckpoint, readManifest, writeCheckpoint } from '../folder/checkpoint.ts'
import { configOf, openRun } from './run.ts'

/** Which checkpoint to pack (default: the newest), which modules may run, and the type of the weights. */
export interface PackOptions extends LoadOptions {
  /** F16 rounds them and takes half the bytes. Default F32. */
  readonly type?: 'F32' | 'F16'
}

/** A packed policy. */
export interface PackedPolicy {
  readonly folder: string
  readonly update: number
  /** SHA-256 of its tensors' file, in hexadecimal: equal weights have equal ones. */
  readonly sha256: string
}

/**
 * Writes the policy of a run of an environment (default: of its newest checkpoint) into a new folder. `loadPolicy`, and so `replay`,
 * `evaluate` and `export`, read it like the run; it cannot be resumed, since it has no state but weights.
 * @throws InputError for the run of a language model, for a folder that is not empty, and as `openRun` does.
 */
export async function packPolicy(
  run: string,
  out: string,
  { from, type = 'F32', ...trust }: PackOptions = {},
): Promise<PackedPolicy> {
  const definition = await openRun(run, trust)
  if (definition.kind !== 'episodes')
    throw new InputError('run', `${run}, of a language model`, 'a run of an environment')
  if ((await isThere(out)) && (await listFolder(out)).length > 0)
    throw new InputError('out', `${out}, with files`, 'a new folder')
  const { tensors, manifest } = await readCheckpoint(run, from)
  const { id } = definition.policy
  const isPolicy = (name: string) => name.startsWith(`${id}.weights.`) || /\.systems\..+\.shared\./.test(name)
  const kept = [...tensors.values()]
    .filter(({ name }) => isPolicy(name))
    .map((each) => (each.type === type ? each : tensorOf(each.name, tensorValues(each), each.shape, type)))
  await makeFolder(out)
  await writeWhole(join(out, 'config.json'), [`${JSON.stringify(configOf(out, definition), null, 2)}\n`])
  const { format: _, checksum: __, files: ___, backends: ____, ...rest } = manifest
  await writeCheckpoint(out, kept, rest)
  const [sha256] = Object.values((await readManifest(out, manifest.update)).manifest.files)
  return { folder: out, update: manifest.update, sha256: sha256! }
}
