import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The folder of our own packages. */
const OURS = fileURLToPath(new URL('../../node_modules/@tensorflow/', import.meta.url))

export interface FakeTensorflow {
  /** CommonJS that replaces the native addon; null for none. */
  readonly addon?: string | null
  /** CommonJS for the package's loading, with `tf` and `register()`. */
  readonly load?: string
  /** The version of its tfjs-core; default ours. */
  readonly core?: string
}

/**
 * Writes a package into `folder` that looks like `@tensorflow/tfjs-node` or `-gpu`, with tfjs's cpu kernels as its
 * library, for tests of discovery, order and failures.
 */
export async function fakeTensorflow(folder: string, name: string, fake: FakeTensorflow = {}): Promise<void> {
  const { addon = 'exports.TF_Version = "0.0.0"', load = 'register()', core } = fake
  const modules = join(folder, 'node_modules')
  const put = async (path: string, files: Record<string, string>) => {
    await mkdir(join(modules, path), { recursive: true })
    for (const [file, text] of Object.entries(files)) await writeFile(join(modules, path, file), text)
  }
  await put(`@tensorflow/${name}`, {
    'package.json': '{ "version": "4.22.0" }',
    'index.js': `
      const tf = require('@tensorflow/tfjs')
      const register = () => {
        const { MathBackendCPU } = require('${OURS}tfjs-backend-cpu')
        class Backend extends MathBackendCPU {
          binding = require('./addon.js')
          isUsingGpuDevice = ${name.endsWith('gpu')}
          firstUse = false
        }
        tf.copyRegisteredKernels('cpu', 'tensorflow')
        tf.registerBackend('tensorflow', () => new Backend())
        tf.setBackend('tensorflow')
      }
      ${load}`,
    ...(addon !== null && { 'addon.js': addon }),
  })
  await put('@tensorflow/tfjs', {
    'package.json': '{ "version": "4.22.0" }',
    'index.js': "module.exports = require('@tensorflow/tfjs-core')",
  })
  await put('@mapbox/node-pre-gyp', {
    'package.json': '{}',
    'index.js': "exports.find = (manifest) => require('node:path').join(manifest, '../addon.js')",
  })
  if (core !== undefined) {
    await put('@tensorflow/tfjs-core', { 'package.json': JSON.stringify({ version: core }) })
    return
  }
  await symlink(join(OURS, 'tfjs-core'), join(modules, '@tensorflow/tfjs-core')).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error // Two fakes in one folder share it.
    },
  )
}
