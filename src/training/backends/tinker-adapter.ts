/** Reads adapters from services with Tinker's protocol: a `.tar.gz` with a folder in PEFT's format. */
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { InputError, show } from '../../base/errors.ts'
import { parseJsonObject } from '../../base/files/files.ts'
import { readSafetensors } from '../../base/files/safetensors.ts'
import type { LoraModel } from '../../language/transformer/lora.ts'
import { weightsOf } from '../../policies/weights.ts'

const unzip = promisify(gunzip)

const PREFIX = 'base_model.model.'
const BLOCK = 512
/** Maximum bytes of an unpacked archive: a highly compressed file could fill the memory. */
const MAX_BYTES = 2 ** 32

/** The weights of an archived adapter. @throws InputError for an invalid archive, or another rank, alpha or shape. */
export async function readAdapterArchive(subject: string, bytes: Uint8Array, lora: LoraModel): Promise<Float32Array> {
  let tar: Uint8Array
  try {
    tar = await unzip(bytes, { maxOutputLength: MAX_BYTES })
  } catch (cause) {
    throw new InputError(subject, `${bytes.length} bytes (${(cause as Error).message})`, 'a .tar.gz', { cause })
  }
  const files = untar(subject, tar)
  const find = (name: string): Uint8Array => {
    const [, file] = [...files].find(([path]) => path === name || path.endsWith(`/${name}`)) ?? []
    if (file !== undefined) return file
    throw new InputError(subject, [...files.keys()].join(', ') || 'no file', `${name} among its files`)
  }
  const config = parseJsonObject(`${subject}, adapter_config.json`, find('adapter_config.json'))
  const { rank, alpha } = lora.settings
  if (config.r !== rank || config.lora_alpha !== alpha) {
    const got = `rank ${show(config.r)}, alpha ${show(config.lora_alpha)}`
    const expected = `rank ${rank}, alpha ${alpha}, as the policy has (languageModel.loraRank and loraAlpha)`
    throw new InputError(subject, got, expected)
  }
  const { tensors } = await readSafetensors(find('adapter_model.safetensors'))
  return weightsOf(subject, tensors, lora, PREFIX)
}

/** The files of a ustar archive, by path. */
function untar(subject: string, tar: Uint8Array): Map<string, Uint8Array> {
  const files = new Map<string, Uint8Array>()
  const textAt = (from: number, length: number): string => {
    const field = tar.subarray(from, from + length)
    const end = field.indexOf(0)
    return new TextDecoder().decode(end < 0 ? field : field.subarray(0, end))
  }
  for (let at = 0; at + BLOCK <= tar.length; ) {
    const name = textAt(at, 100)
    if (name === '') break
    const length = Number.parseInt(textAt(at + 124, 12).trim(), 8)
    const kind = textAt(at + 156, 1)
    if (!(length >= 0 && at + BLOCK + length <= tar.length)) {
      throw new InputError(subject, `${name} of ${length} bytes, ${tar.length - at - BLOCK} there`, 'a whole archive')
    }
    const prefix = textAt(at + 345, 155)
    if (kind === '0' || kind === '') {
      files.set(prefix === '' ? name : `${prefix}/${name}`, tar.subarray(at + BLOCK, at + BLOCK + length))
    }
    at += BLOCK + Math.ceil(length / BLOCK) * BLOCK
  }
  return files
}
