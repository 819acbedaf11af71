import type { Tensor } from '../../src/base/files/safetensors.ts'
import type { Manifest } from '../../src/training/folder/checkpoint.ts'

/** A tensor of equal bytes. */
export function tensor(fill: number, size = 64): Tensor {
  return { name: 'numbers', type: 'U8', shape: [size], bytes: new Uint8Array(size).fill(fill) }
}

/** A manifest without cohorts. */
export function manifest(update: number): Omit<Manifest, 'format' | 'files' | 'checksum'> {
  return { colonnade: '0', node: '0', kernels: 'plain', seed: 0, update, steps: 0, seconds: 0, cohorts: {} }
}
