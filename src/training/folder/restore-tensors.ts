/** Restores a world's saved columns from the tensors of a checkpoint; loaded where one is restored. */
import { InputError, show } from '../../base/errors.ts'
import type { Tensor, TensorType } from '../../base/files/safetensors.ts'
import { VERSION } from '../../base/version.ts'
import { haveSameBits } from '../../kernels/bind.ts'
import type { World } from '../../world/world.ts'
import type { Manifest } from './checkpoint.ts'
import { savedTensors } from './snapshot.ts'

/**
 * Fills saved columns from tensors. Columns of bytes also take whole numbers that an earlier version kept as f32.
 * @throws InputError for a missing or wrong one, before writing.
 */
export function restoreTensors(subject: string, world: World, saved: ReadonlyMap<string, Tensor>): void {
  const tensors = new Map(saved)
  // A column without values may be younger than the checkpoint.
  const targets = savedTensors(world).filter(({ name, bytes }) => bytes.length > 0 || tensors.has(name))
  for (const { name, type, shape } of targets) {
    const tensor = tensors.get(name) && asStored(tensors.get(name)!, type)
    if (tensor !== undefined) tensors.set(name, tensor)
    if (tensor === undefined) throw new InputError(subject, `no tensor ${name}`, `${type} of shape ${show(shape)}`)
    if (tensor.type !== type || show(tensor.shape) !== show(shape)) {
      const expected = `${type} of shape ${show(shape)}`
      throw new InputError(`${subject}, ${name}`, `${tensor.type} of shape ${show(tensor.shape)}`, expected)
    }
  }
  for (const { name, bytes } of targets) bytes.set(tensors.get(name)!.bytes)
}

/** A tensor of f32 as one of bytes, if such a one is wanted and all of its values are bytes; otherwise the tensor itself. */
function asStored(tensor: Tensor, wanted: TensorType): Tensor {
  if (wanted !== 'U8' || tensor.type !== 'F32') return tensor
  const values = new Float32Array(new Uint8Array(tensor.bytes).buffer)
  const bytes = Uint8Array.from(values)
  return values.every((value, i) => value === bytes[i]) ? { ...tensor, type: 'U8', bytes } : tensor
}

/** The changes of a resumed run that affect its bits, as texts. */
export function differences(manifest: Manifest, world: World): string[] {
  const pairs = [
    ...(haveSameBits(manifest.kernels, world.kernelBuild) ? [] : [['kernels', manifest.kernels, world.kernelBuild]]),
    ...(manifest.colonnade === VERSION ? [] : [['version of Colonnade', manifest.colonnade, VERSION]]),
  ]
  return pairs.map(([what, then, now]) => `${what} was ${then} and is ${now}: the run continues, but with other bits`)
}
