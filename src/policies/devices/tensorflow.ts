/** TensorFlow's C library through `@tensorflow/tfjs-node` or `@tensorflow/tfjs-node-gpu`. */
import { existsSync } from 'node:fs'
import util from 'node:util'
import { findPackage } from '../../base/files/packages.ts'
import type { Backend } from './backend.ts'
import { activate, tfjsOf } from './tfjs.ts'

interface TensorflowBackend {
  readonly binding: { readonly TF_Version: string }
  readonly isUsingGpuDevice: boolean
}

let loaded: string | undefined

/** Starts TensorFlow. Loads the package's native addon first: if that fails, nothing has been registered with tfjs. */
export async function startTensorflow(
  name: 'tfjs-node-gpu' | 'tfjs-node',
  places?: readonly string[],
): Promise<Backend> {
  const found = findPackage(`@tensorflow/${name}`, places)
  if (loaded !== undefined && loaded !== name) {
    throw new Error(`this process has loaded ${loaded}, and two TensorFlow bindings do not go into one process`)
  }
  const { tf, layers } = tfjsOf(findPackage('@tensorflow/tfjs', [found.manifest]))
  const { find } = found.require('@mapbox/node-pre-gyp') as { find(manifest: string): string }
  const addon = find(found.manifest)
  if (!existsSync(addon)) {
    throw new Error(`${addon} is not there: the install script of @tensorflow/${name} could not download or build it`)
  }
  found.require(addon)
  restoreUtil()
  loaded = name
  // A package in its own tree registers the same cpu kernels again, and tfjs would warn about each.
  const isProduction = tf.env().getBool('PROD')
  tf.env().set('PROD', true)
  found.require(`@tensorflow/${name}`)
  tf.env().set('PROD', isProduction)
  await activate(tf, 'tensorflow')
  const { binding, isUsingGpuDevice } = tf.backend() as unknown as TensorflowBackend
  return {
    tf,
    layers,
    backend: 'tensorflow',
    version: `${name} ${found.version}, TensorFlow ${binding.TF_Version}`,
    readsSynchronously: true,
    isGpu: isUsingGpuDevice,
  }
}

/** Node 23 removed these two functions from `node:util`; the package calls them in each operation. */
function restoreUtil(): void {
  const target = util as unknown as Record<string, unknown>
  target.isNullOrUndefined ??= (value: unknown) => value === null || value === undefined
  target.isArray ??= Array.isArray
}
