/**
 * Saved weights of a training service: folders that PEFT reads, by the protocol's paths. `tinker://<model>/weights/<name>` includes
 * the optimizer's state, `tinker://<model>/sampler_weights/<name>` does not.
 */
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { InputError, show } from '../../base/errors.ts'
import { isThere, listFolder, readJsonObject, readWhole } from '../../base/files/files.ts'
import { RequestError } from '../../base/http/server.ts'
import { LORA_CONFIG } from '../../language/transformer/lora-folder.ts'

const zip = promisify(gzip)

const PATH = /^tinker:\/\/([\w.:-]+)\/(weights|sampler_weights)\/([\w.-]+)$/
const NAME = /^(?!\.+$)[\w.-]{1,128}$/
const MODEL_ID = /^(?!\.+$)[\w.:-]{1,128}$/
const FILES = [LORA_CONFIG, 'adapter_model.safetensors']

/** Weights to continue training, or only to sample. */
export type CheckpointKind = 'weights' | 'sampler_weights'

/** A saved adapter. */
export interface KeptAdapter {
  readonly path: string
  readonly folder: string
  readonly kind: CheckpointKind
}

/** The saved adapters below a folder. */
export class TinkerCheckpoints {
  readonly #root: string

  constructor(root: string) {
    this.#root = root
  }

  /** The place of a model's weights with this name. @throws RequestError 400 for an invalid name, 404 for an invalid model. */
  place(modelId: string, kind: CheckpointKind, name: unknown): KeptAdapter {
    if (typeof name !== 'string' || !NAME.test(name)) {
      throw new RequestError(400, `path: got ${show(name)}, expected a name of letters, digits, ".", "_" and "-"`)
    }
    const folder = join(this.#folderOf(modelId), kind, name)
    return { path: `tinker://${modelId}/${kind}/${name}`, folder, kind }
  }

  #folderOf(modelId: string): string {
    if (!MODEL_ID.test(modelId)) throw new RequestError(404, `model_id: got ${show(modelId)}, expected a model's id`)
    return join(this.#root, modelId.replaceAll(':', '_')) // Windows allows no colon in a folder's name.
  }

  /** @throws RequestError 404 if nothing is saved at the path. */
  async find(path: unknown): Promise<KeptAdapter> {
    const [, modelId, kind, name] = (typeof path === 'string' && PATH.exec(path)) || []
    const kept = modelId === undefined ? null : this.place(modelId, kind as CheckpointKind, name)
    if (kept !== null && (await this.has(kept))) return kept
    throw new RequestError(404, `path: got ${show(path)}, expected weights that were saved here`)
  }

  has({ folder }: KeptAdapter): Promise<boolean> {
    return isThere(join(folder, LORA_CONFIG))
  }

  /** The rank and projections of a saved adapter. */
  async shapeOf({ folder }: KeptAdapter): Promise<{ rank: number; attention: boolean; perceptron: boolean }> {
    const path = join(folder, LORA_CONFIG)
    const { r, target_modules: targets } = await readJsonObject(path)
    if (!Array.isArray(targets)) throw new InputError(`${path}, target_modules`, show(targets), 'a list of projections')
    const has = (name: string) => targets.includes(name)
    return { rank: r as number, attention: has('q_proj'), perceptron: has('gate_proj') }
  }

  /** The saved weights of a model, in the protocol's form. */
  async list(modelId: string): Promise<object[]> {
    const listed: object[] = []
    for (const kind of ['weights', 'sampler_weights'] as const) {
      const names = await listFolder(join(this.#folderOf(modelId), kind))
      for (const name of names) {
        if (!NAME.test(name)) continue
        const kept = this.place(modelId, kind, name)
        if (!(await this.has(kept))) continue
        const file = await stat(join(kept.folder, 'adapter_model.safetensors'))
        listed.push({
          ...{ checkpoint_id: `${kind}/${name}`, checkpoint_type: kind === 'weights' ? 'training' : 'sampler' },
          ...{ time: file.mtime.toISOString(), tinker_path: kept.path, size_bytes: file.size, public: false },
        })
      }
    }
    return listed
  }

  /** A saved adapter as a `.tar.gz` of PEFT's files. */
  async archive({ folder }: KeptAdapter): Promise<Uint8Array> {
    const parts: Uint8Array[] = []
    for (const name of FILES) {
      const bytes = await readWhole(join(folder, name), 'a file of a saved adapter')
      parts.push(tarHeader(name, bytes.length), bytes, new Uint8Array(-bytes.length & 511))
    }
    return zip(Buffer.concat([...parts, new Uint8Array(1024)]))
  }
}

/** The header of a file in the ustar format. */
function tarHeader(name: string, length: number): Uint8Array {
  const header = Buffer.alloc(512)
  const fields: [number, string][] = [
    [0, name],
    [100, '0000644\0'],
    [108, '0000000\0'],
    [116, '0000000\0'],
    [124, `${length.toString(8).padStart(11, '0')}\0`],
    [136, '00000000000\0'],
    [148, '        '],
    [156, '0'],
    [257, 'ustar\0'],
    [263, '00'],
  ]
  for (const [at, text] of fields) header.write(text, at, 'latin1')
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
  return header
}
