/** tfjs's packages: ours, and those that the user installed, which may lie in another tree with a tfjs of its own. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

/** The module namespace of tfjs-core. */
export type Tf = typeof import('@tensorflow/tfjs-core')
/** The module namespace of tfjs-layers. */
export type Layers = typeof import('@tensorflow/tfjs-layers')

/** tfjs-layers among our own dependencies. */
export const ownLayers = (): Promise<Layers> => import('@tensorflow/tfjs-layers')

/** tfjs-core among them. Its gradients are registered by tfjs-layers: alone it cannot differentiate anything. */
export async function ownTf(): Promise<Tf> {
  await ownLayers()
  return import('@tensorflow/tfjs-core')
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

  constructor(name: string) {
    super(`package ${name} is not installed (npm install ${name})`)
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
