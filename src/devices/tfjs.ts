/**
 * tfjs's packages, all of which the user installs: those beside Colonnade, and those that may lie in another tree with a tfjs
 * of its own.
 */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

// tfjs is an optional peer: where it is not installed, its types are any instead of errors in our declarations.
// biome-ignore lint/suspicious/noTsIgnore: whether there is an error is another's choice
/** @ts-ignore */
import type * as core from '@tensorflow/tfjs-core'
// biome-ignore lint/suspicious/noTsIgnore: as above
/** @ts-ignore */
import type * as layers from '@tensorflow/tfjs-layers'

/** The module namespace of tfjs-core. */
export type Tf = typeof core
/** The module namespace of tfjs-layers. */
export type Layers = typeof layers
/** Types of tensors and models, for whoever is handed them. */
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

/** tfjs-layers beside Colonnade. */
export const ownLayers = (): Promise<Layers> =>
  orNotInstalled('@tensorflow/tfjs-layers', () => import('@tensorflow/tfjs-layers'))

/**
 * tfjs-core beside it. Its gradients are registered by tfjs-layers: alone it cannot differentiate anything.
 * @throws NotInstalled, or an Error where it is of another version.
 */
export async function ownTf(): Promise<Tf> {
  await ownLayers()
  const tf = await orNotInstalled('@tensorflow/tfjs-core', () => import('@tensorflow/tfjs-core'))
  if (tf.version_core === VERSION) return tf
  throw new Error(`tfjs ${tf.version_core} is installed, and Colonnade needs ${VERSION} (npm install ${FIRST_DEVICE})`)
}

/**
 * A package of tfjs that lies beside Colonnade.
 * @throws NotInstalled that says what to install.
 */
export async function orNotInstalled<T>(name: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load()
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code !== 'ERR_MODULE_NOT_FOUND' || !message.includes(`'${name}'`)) throw cause
    throw new NotInstalled(name, FIRST_DEVICE)
  }
}

/** A package that was found. */
export interface Installed {
  /** Path of its package.json. */
  readonly manifest: string
  readonly version: string
  /** Loads a package as this one would: itself, or one of its dependencies. */
  readonly require: NodeJS.Require
}

/** A package that no place has. */
export class NotInstalled extends Error {
  override readonly name = 'NotInstalled'

  /** `install` names all packages that are needed with it. */
  constructor(name: string, install = name) {
    super(`package ${name} is not installed (npm install ${install})`)
  }
}

/** Finds a package, looking from each file or folder (ending in a slash) in turn. */
export function findInstalled(name: string, places: readonly string[]): Installed {
  for (const place of places) {
    let manifest: string
    try {
      manifest = createRequire(place).resolve(`${name}/package.json`)
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') continue
      throw cause
    }
    const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }
    return { manifest, version, require: createRequire(manifest) }
  }
  throw new NotInstalled(name)
}

/**
 * tfjs-core and tfjs-layers as `owner` sees them. All copies of tfjs-core in a process share one engine and one registry
 * of kernels, so they must be of one version.
 */
export function tfjsOf(owner: Installed): { tf: Tf; layers: () => Promise<Layers> } {
  const core = '@tensorflow/tfjs-core'
  const theirs = findInstalled(core, [owner.manifest])
  const ours = findInstalled(core, [import.meta.filename])
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
