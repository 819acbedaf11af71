/**
 * WebGPU without a GPU: Dawn over SwiftShader, a software Vulkan driver. It is in Debian's chromium-common, with the
 * Vulkan loader; nothing is installed on the machine.
 */
import { readdir, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { cached, installPackages } from './cache.ts'

const [TFJS, DAWN, NODE_HEADERS] = ['4.22.0', '0.6.2', '1.9.0']

/** A folder from which the packages of device `webgpu` are found. */
export interface SwiftShader {
  readonly folder: string
  /** Environment variables with which another process finds the driver; this process has them already. */
  readonly environment: Readonly<Record<string, string>>
}

/** Makes SwiftShader this process's Vulkan driver, or returns why that fails here. */
export async function webgpuSwiftShader(): Promise<SwiftShader | { readonly why: string }> {
  if (process.platform !== 'linux')
    return { why: `SwiftShader is known on Debian's Linux, and this is ${process.platform}` }
  const made = await cached(`webgpu-${DAWN}-tfjs-${TFJS}-${process.arch}`, async (folder, run) => {
    const tfjs = ['tfjs-core', 'tfjs-layers', 'tfjs-backend-cpu', 'tfjs-backend-webgpu']
    const packages = tfjs.map((name) => `@tensorflow/${name}@${TFJS}`)
    await installPackages(folder, run, [...packages, `webgpu@${DAWN}`, `node-api-headers@${NODE_HEADERS}`])
    await run('apt-get', ['download', 'chromium-common'])
    const file = (await readdir(folder)).find((name) => name.endsWith('.deb'))!
    await run('dpkg', ['-x', file, 'debian'])
    await rm(join(folder, file))
    await writeFile(join(folder, 'vulkan.c'), ADDON)
    await run('gcc', ['-shared', '-fPIC', '-I', 'node_modules/node-api-headers/include', 'vulkan.c', ...LINK])
  })
  if ('why' in made) return made
  const libraries = join(made.folder, LIBRARIES)
  const driver = { VK_ICD_FILENAMES: join(libraries, 'vk_swiftshader_icd.json') }
  Object.assign(process.env, driver)
  createRequire(import.meta.url)(join(made.folder, 'vulkan.node'))
  return { folder: made.folder, environment: { ...driver, LD_LIBRARY_PATH: libraries } }
}

const LIBRARIES = 'debian/usr/lib/chromium'
/**
 * Dawn loads libvulkan.so.1 by name, from search paths that were fixed when the process started. An addon linked to the
 * library loads it before.
 */
const ADDON = `
#include <node_api.h>
NAPI_MODULE_INIT() { return exports; }
`
const LINK = [
  ...['-Wl,--no-as-needed', '-L', LIBRARIES, '-l:libvulkan.so.1', `-Wl,-rpath,$ORIGIN/${LIBRARIES}`],
  ...['-o', 'vulkan.node'],
]
