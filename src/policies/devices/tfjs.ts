/** tfjs's packages, which the user installs: those next to Colonnade, and those of another tree with its own tfjs. */

// tfjs is an optional peer: if it is not installed, its types are any, not errors in our declarations.
// biome-ignore lint/suspicious/noTsIgnore: whether there is an error depends on the user's installation
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

/** The version of tfjs for whose kernels, gradients and heap the devices were made. */
const VERSION = '4.22.0'
/** Packages of the first device. tfjs-backend-wasm includes tfjs-backend-cpu. */
export const FIRST_DEVICE = ['core', 'layers', 'backend-wasm']
  .map((name) => `@tensorflow/tfjs-${name}@${VERSION}`)
  .join(' ')

/** Imports a tfjs package next to Colonnade or the program. @throws NotInstalled with the packages to install. */
export const ownPackage = <T>(name: string): Promise<T> => importPackage<T>(name, FIRST_DEVICE)

/** tfjs-layers, as `ownPackage` finds it. */
export const ownLayers = (): Promise<Layers> => ownPackage('@tensorflow/tfjs-layers')

/**
 * tfjs-core, as `ownPackage` finds it. tfjs-layers registers its gradients: without that it cannot differentiate.
 * @throws NotInstalled, or an Error for another version.
 */
export async function ownTf(): Promise<Tf> {
  await ownLayers()
  const tf = await ownPackage<Tf>('@tensorflow/tfjs-core')
  if (tf.version_core === VERSION) return tf
  throw new Error(`tfjs ${tf.version_core} is installed, and Colonnade needs ${VERSION} (npm install ${FIRST_DEVICE})`)
}

/**
 * tfjs-core and tfjs-layers as `owner` sees them. All copies of tfjs-core in a process share one engine and kernel registry, so they must
 * have one version.
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
 * Makes a backend tfjs's active one. If it cannot start, its error is thrown here while the previous backend is still active;
 * `tf.setBackend` would log the error and leave no backend.
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
