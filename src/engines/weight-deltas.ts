/**
 * Weight transfer as deltas, in the layout of slime's SGLang: a shared folder has one folder `weight_v000012` per version. The first has
 * a whole model. Others have, for each changed tensor, the xor with the previous version's bytes, compressed with zstd, and the Adler-32
 * of the result. A reader keeps its own whole model and applies the versions that it missed.
 */
import zlib from 'node:zlib'
import { InputError, show } from '../base/errors.ts'
import { isThere, listFolder, readJsonObject, readWhole, removeWhole, writeWhole } from '../base/files/files.ts'
import { readSafetensors, type Tensor, tensorOf, writeSafetensors } from '../base/files/safetensors.ts'
import { deliverFolder } from '../language/transformer/delivery.ts'
import { saveTransformer, transformerTensors } from '../language/transformer/folder.ts'
import type { TransformerModel } from '../language/transformer/model.ts'

/** Number of deltas before the next whole model, which bounds what a new reader must load. */
const DELTAS_MAX = 16
const INDEX = 'model.safetensors.index.json'
const WEIGHTS = 'model.safetensors'
const STATE = '.weight_sync/state.json'

/** Node's zstd functions; undefined before Node 22.15. */
const { zstdCompressSync: compress, zstdDecompressSync: decompress } = zlib as unknown as {
  zstdCompressSync?(bytes: Uint8Array): Uint8Array
  zstdDecompressSync?(bytes: Uint8Array): Uint8Array
}

/** @throws InputError if Node has no zstd. */
export function checkZstd(subject: string): void {
  if (compress !== undefined) return
  throw new InputError(subject, `Node ${process.versions.node}, which has no zstd`, 'Node 22.15 or newer, for deltas')
}

/** A folder that receives versions of a model's weights. */
export class WeightsSource {
  readonly #folder: string
  readonly #model: TransformerModel
  /** The bytes of the last version's tensors; null before the first. */
  #before: Map<string, Uint8Array> | null = null
  #number = 0
  #numDeltas = 0

  constructor(folder: string, model: TransformerModel) {
    this.#folder = folder
    this.#model = model
  }

  /** Writes weights and returns their version number. It starts from the current time, so that no earlier run has used it. */
  async publish(weights: Float32Array): Promise<number> {
    const model = this.#model
    const tensors = transformerTensors(model, weights)
    const before = this.#before
    const isWhole = before === null || this.#numDeltas === DELTAS_MAX
    const number = before === null ? Math.floor(Date.now() / 1000) : this.#number + 1
    await deliverFolder(versionFolder(this.#folder, number), number, (folder) =>
      isWhole ? saveTransformer(folder, model, weights) : writeDelta(folder, number, tensors, before),
    )
    this.#before = new Map(tensors.map(({ name, bytes }) => [name, bytes.slice()]))
    this.#number = number
    this.#numDeltas = isWhole ? 0 : this.#numDeltas + 1
    if (isWhole) await this.#removeOlder(number)
    return number
  }

  async #removeOlder(number: number): Promise<void> {
    for (const name of await listFolder(this.#folder)) {
      const [, found] = /^weight_v(\d{6,})$/.exec(name) ?? []
      if (found !== undefined && Number(found) < number) await removeWhole(`${this.#folder}/${name}`)
    }
  }
}

/**
 * Updates the model in folder `local` to version `target` of `source`, by deltas or from the last whole model. Replaces the folder
 * atomically.
 * @throws InputError if a version is missing, or if a checksum fails even from the last whole model.
 */
export async function pullWeights(local: string, source: string, target: number): Promise<void> {
  const subject = `weights of ${source}`
  const applied = (await isThere(`${local}/${STATE}`))
    ? Number((await readJsonObject(`${local}/${STATE}`)).version)
    : null
  if (applied === target) return
  let whole = target
  while (await isDelta(subject, versionFolder(source, whole))) whole--
  const isBehind = applied !== null && applied >= whole && applied < target
  try {
    await pullFrom(isBehind ? local : versionFolder(source, whole), isBehind ? applied : whole)
  } catch (error) {
    if (!(isBehind && error instanceof ChecksumError)) throw error
    await pullFrom(versionFolder(source, whole), whole) // The local model was damaged.
  }

  async function pullFrom(base: string, number: number): Promise<void> {
    const { tensors, metadata } = await readSafetensors(`${base}/${WEIGHTS}`)
    let all = [...tensors.values()]
    for (let next = number + 1; next <= target; next++) all = await applyDelta(versionFolder(source, next), next, all)
    await deliverFolder(local, target, async (folder) => {
      const { format = 'pt' } = metadata
      await writeSafetensors(`${folder}/${WEIGHTS}`, all, { format })
      for (const name of await listFolder(base)) {
        if (name === WEIGHTS || name === 'delivery.json' || !/\.\w+$/.test(name) || name.startsWith('.')) continue
        await writeWhole(`${folder}/${name}`, [await readWhole(`${base}/${name}`, 'a file of the model')])
      }
    })
    const state = `${JSON.stringify({ version: digits(target) })}\n`
    await writeWhole(`${local}/${STATE}`, [new TextEncoder().encode(state)])
  }
}

class ChecksumError extends InputError {}

async function writeDelta(
  folder: string,
  number: number,
  tensors: readonly Tensor[],
  before: ReadonlyMap<string, Uint8Array>,
): Promise<void> {
  const changed: Tensor[] = []
  const checksums: Record<string, string> = {}
  for (const { name, bytes } of tensors) {
    const difference = xor(bytes, before.get(name)!)
    if (difference.every((byte) => byte === 0)) continue
    changed.push(tensorOf(name, Uint8Array.from(compress!(difference))))
    checksums[name] = adler32(bytes)
  }
  const file = 'model-00000-of-00001.safetensors'
  await writeSafetensors(`${folder}/${file}`, changed, checksums)
  const index = {
    metadata: {
      ...{ version: digits(number), base_version: digits(number - 1) },
      ...{ delta_encoding: 'xor', compression_format: 'zstd', checksum_format: 'adler32' },
    },
    weight_map: Object.fromEntries(changed.map(({ name }) => [name, file])),
  }
  await writeWhole(`${folder}/${INDEX}`, [new TextEncoder().encode(JSON.stringify(index))])
}

/** The tensors of the next version. */
async function applyDelta(folder: string, number: number, tensors: readonly Tensor[]): Promise<Tensor[]> {
  const { metadata, weight_map: files } = (await readJsonObject(`${folder}/${INDEX}`)) as {
    metadata: Record<string, unknown>
    weight_map: Record<string, string>
  }
  const wanted = { delta_encoding: 'xor', compression_format: 'zstd', checksum_format: 'adler32' }
  for (const [key, value] of Object.entries({ ...wanted, base_version: digits(number - 1) })) {
    if (metadata[key] !== value) throw new InputError(`${folder}/${INDEX}, ${key}`, show(metadata[key]), show(value))
  }
  checkZstd(folder)
  const deltas = new Map<string, { tensor: Tensor; checksum: string | undefined }>()
  for (const file of new Set(Object.values(files))) {
    const read = await readSafetensors(`${folder}/${file}`)
    for (const tensor of read.tensors.values())
      deltas.set(tensor.name, { tensor, checksum: read.metadata[tensor.name] })
  }
  const next = tensors.map((tensor) => {
    const delta = deltas.get(tensor.name)
    if (delta === undefined) return tensor
    deltas.delete(tensor.name)
    const difference = decompress!(delta.tensor.bytes)
    if (difference.length !== tensor.bytes.length) {
      throw new InputError(`${folder}, ${tensor.name}`, `${difference.length} bytes`, `${tensor.bytes.length}`)
    }
    const bytes = xor(tensor.bytes, difference)
    const checksum = adler32(bytes)
    if (checksum === delta.checksum) return { ...tensor, bytes }
    throw new ChecksumError(
      `${folder}, ${tensor.name}`,
      `Adler-32 ${checksum}`,
      `${delta.checksum}, its recorded checksum`,
    )
  })
  const [unknown] = deltas.keys()
  if (unknown !== undefined) throw new InputError(folder, `a tensor ${show(unknown)}`, 'only tensors of the model')
  return next
}

/** Whether a version is a delta, not a whole model. @throws InputError if the version does not exist. */
async function isDelta(subject: string, folder: string): Promise<boolean> {
  if (await isThere(`${folder}/${INDEX}`)) {
    const { metadata } = await readJsonObject(`${folder}/${INDEX}`)
    return typeof metadata === 'object' && metadata !== null && Object.hasOwn(metadata, 'delta_encoding')
  }
  if (await isThere(`${folder}/${WEIGHTS}`)) return false
  throw new InputError(subject, `no ${folder}`, 'every version since the last whole model')
}

function versionFolder(folder: string, number: number): string {
  return `${folder}/weight_v${digits(number)}`
}

function digits(number: number): string {
  return String(number).padStart(6, '0')
}

function xor(bytes: Uint8Array, others: Uint8Array): Uint8Array {
  const result = new Uint8Array(bytes.length)
  for (let i = 0; i < result.length; i++) result[i] = bytes[i]! ^ others[i]!
  return result
}

/** Adler-32 (RFC 1950) as eight hexadecimal digits. */
export function adler32(bytes: Uint8Array): string {
  let [a, b] = [1, 0]
  for (let i = 0; i < bytes.length; ) {
    // The most bytes that keep both sums below 2^32.
    const end = Math.min(bytes.length, i + 5552)
    for (; i < end; i++) {
      a += bytes[i]!
      b += a
    }
    a %= 65_521
    b %= 65_521
  }
  return (b * 65_536 + a).toString(16).padStart(8, '0')
}
