/** tfjs's packages: ours, and those that the user installed, which may lie in another tree with a tfjs of its own. */
import { createRequire } from 'node:module'

/** The module namespace of tfjs-core. */
export type Tf = typeof import('@tensorflow/tfjs-core')
/** The module namespace of tfjs-layers. */
export type Layers = typeof import('@tensorflow/tfjs-layers')

/** tfjs-core and tfjs-layers among our own dependencies. */
export const ownTf = (): Promise<Tf> => import('@tensorflow/tfjs-core')
export const ownLayers = (): Promise<Layers> => import('@tensorflow/tfjs-layers')

/** A package that was found: its folder's package.json, from which its own dependencies are resolved. */
export interface Installed {
  /** Path of its package.json. */
  readonly manifest: string
  readonly version: string
  /** Loads a package as this one would: itself, or one of its dependencies. */
  readonly require: NodeJS.Require
}

/** Finds an optional package, looking from each file or folder (ending in a slash) in turn. */
export function findInstalled(name: string, places: readonly string[]): Installed {
  for (const place of places) {
    const require = createRequire(place)
    let manifest: string
    try {
      manifest = require.resolve(`${name}/package.json`)
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') continue
      throw cause
    }
    return { manifest, version: (require(manifest) as { version: string }).version, require: createRequire(manifest) }
  }
  throw new Error(`package ${name} is not installed (npm install ${name})`)
}

/**
 * tfjs-core and tfjs-layers as `owner` sees them. All copies of tfjs-core in a process share one engine and one registry
 * of kernels, so they must be of one version.
 */
export async function tfjsOf(owner: Installed): Promise<{ tf: Tf; layers: () => Promise<Layers> }> {
  const tf = owner.require('@tensorflow/tfjs-core') as Tf
  const { version_core: ours } = await ownTf()
  if (tf.version_core !== ours) {
    throw new Error(`${owner.manifest} comes with tfjs ${tf.version_core}, and Colonnade needs ${ours}`)
  }
  return { tf, layers: async () => owner.require('@tensorflow/tfjs-layers') as Layers }
}

/**
 * Makes a backend tfjs's active one. A backend that cannot start throws its own reason here, before tfjs has let go of the
 * one that was active; `tf.setBackend` would log the reason and leave no backend at all.
 */
export async function activate(tf: Tf, backend: string): Promise<void> {
  if (tf.getBackend() === backend) return
  const factory = tf.findBackendFactory(backend)
  if (factory !== null && !(backend in tf.engine().registry)) {
    const made = await factory()
    tf.removeBackend(backend)
    tf.registerBackend(backend, () => made)
  }
  if (!(await tf.setBackend(backend))) throw new Error(`tfjs did not accept its ${backend} backend`)
}
