/** WebGPU in Node: Dawn, the package `webgpu`. */
import { findPackage, importPackage } from '../../base/files/packages.ts'

interface Dawn {
  create(options: readonly string[]): GPU
}

/** WebGPU as it was found. */
export interface FoundGpu {
  readonly gpu: GPU
  /** What runs it, with its version. */
  readonly version: string
}

/** Dawn lives only as long as the object that `create` returns. */
let found: FoundGpu | undefined

/** Finds WebGPU; `places` are the files or folders (ending in a slash) from which the package is searched. */
export async function findGpu(places?: readonly string[]): Promise<FoundGpu> {
  if (found !== undefined) return found
  const { manifest, version } = findPackage('webgpu', places)
  const { create } = await importPackage<Dawn>('webgpu', undefined, [manifest])
  found = { gpu: create([]), version: `Dawn (webgpu ${version})` }
  return found
}
