/** Starts the device that runs our own shaders. One is enough for a process. */
import { InputError } from '../../base/errors.ts'
import { findGpu } from './adapter.ts'
import { Gpu } from './gpu.ts'

/** Limits of the adapter that large networks need; WebGPU's own are small. */
const LIMITS = [
  'maxStorageBufferBindingSize',
  'maxBufferSize',
  'maxComputeWorkgroupStorageSize',
  'maxStorageBuffersPerShaderStage',
] as const

let started: Promise<Gpu> | undefined

/**
 * Starts WebGPU, once. `places` are the files or folders from which Dawn is searched in Node.
 * @throws InputError with the reason where it cannot start.
 */
export function startGpu(places?: readonly string[]): Promise<Gpu> {
  started ??= start(places).catch((cause: unknown) => {
    started = undefined
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new InputError('device', "'webgpu'", `a device that can start here; ${why}`, { cause })
  })
  return started
}

async function start(places?: readonly string[]): Promise<Gpu> {
  const { gpu, version } = await findGpu(places)
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' })
  if (adapter === null)
    throw new Error(`${version} found no adapter: no GPU, or no driver for it (Vulkan, Metal or Direct3D)`)
  const { info, limits } = adapter
  const device = await adapter.requestDevice({
    requiredLimits: Object.fromEntries(LIMITS.map((name) => [name, limits[name]])),
  })
  const { isFallbackAdapter } = info as { readonly isFallbackAdapter?: boolean }
  const description = `${version} on ${info.description || info.device || info.vendor}`
  return new Gpu(device, description, isFallbackAdapter === undefined ? null : !isFallbackAdapter)
}
