/** tfjs's packages, all of which the user installs: Colonnade's own, and those of another tree with a tfjs of its own. */

// tfjs is an optional peer: where it is not installed, its types are any instead of errors in our declarations.
// biome-ignore lint/suspicious/noTsIgnore: whether there is an error is another's choice
/** @ts-ignore */
import type * as core from '@tensorflow/tfjs-core'
// biome-ignore lint/suspicious/noTsIgnore: as above
/** @ts-ignore */
import type * as layers from '@tensorflow/tfjs-layers'
import { findPackage, type Installed, importPackage } from '../../base/files/packages.ts'

/** The module namespace of tfjs-core. */
export type Tf = typeof core
/** The module namespace of tfjs-layers. */
export type Layers = typeof layers
/** Types of tensors and models, for functions that receive them. */
export type LayersModel = layers.LayersModel
export type Tensor = core.Tensor
export type Tensor2D = core.Tensor2D
export type Tensor3D = core.Tensor3D
export type Variable = core.Variable

/** The version of tfjs whose kernels, gradients and heap the devices were made for. */
const VERSION = '4.22.0'
/** What gives a machine its first device. tfjs-backend-wasm brings tfjs-backend-cpu with it. */
export const FIRST_DEVICE = ['core', 'layers', 'backend-wasm']
  .map((name) => `@tensorflow/tfjs-${name}@${VERSION}`)
  .join(' ')

/** A package of tfjs that lies beside Colonnade or the program. @throws NotInstalled that says what to install. */
export const ownPackage = <T>(name: string): Promise<T> => importPackage<T>(name, FIRST_DEVICE)

/** tfjs-layers as `ownPackage` finds it. */
export const ownLayers = (): Promise<Layers> => ownPackage('@tensorflow/tfjs-layers')

/**
 * tfjs-core as `ownPackage` finds it. Its gradients are registered by tfjs-layers: alone it cannot differentiate anything.
 * @throws NotInstalled, or an Error where it is of another version.
 */
export async function ownTf(): Promise<Tf> {
  await ownLayers()
  const tf = await ownPackage<Tf>('@tensorflow/tfjs-core')
  if (tf.version_core === VERSION) return tf
  throw new Error(`tfjs ${tf.version_core} is installed, and Colonnade needs ${VERSION} (npm install ${FIRST_DEVICE})`)
}

/**
 * tfjs-core and tfjs-layers as `owner` sees them. All copies of tfjs-core in a process share one engine and one registry
 * of kernels, so they must be of one version.
 */
export function tfjsOf(owner: Installed): { tf: Tf; layers: () => Promise<Layers> } {
  const core = '@tensorflow/tfjs-core'
  const theirs = findPackage(core, [owner.manifest])
  const ours = findPackage(core)
  if (theirs.version !== ours.version) {
    throw new Error(`${owner.manifest} comes with tfjs ${theirs.version}, and Colonnade needs ${ours.version}`)
  }
  return {
    tf: theirs.require(core) as Tf,
    layers: async () => owner.require('@tensorflow/tfjs-layers') as Layers,
  }
}

/**
 * Makes a backend tfjs's active one. A backend that cannot start throws its own reason here, before tfjs has let go of the
 * one that was active; `tf.setBackend` would log the reason and leave no backend at all.
 */
export async function activate(tf: Tf, backend: string): Promise<void> {
  const isMade = backend in tf.engine().registry
  if (isMade && tf.getBackend() === backend) return
  const factory = tf.findBackendFactory(backend)
  if (!isMade && factory !== null) {
    const made = await factory()
    tf.removeBackend(backend)
    tf.registerBackend(backend, () => made)
  }
  if (!(await tf.setBackend(backend))) throw new Error(`tfjs did not accept its ${backend} backend`)
}
