/** WebGPU in Node: tfjs's backend (package `@tensorflow/tfjs-backend-webgpu`) over Dawn (package `webgpu`). */
import { pathToFileURL } from 'node:url'
import type { Backend } from './device.ts'
import { activate, findInstalled, type Tf, tfjsOf } from './tfjs.ts'

/** What is used of the `webgpu` package. */
interface Dawn {
  create(options: readonly string[]): { requestAdapter(options: object): Promise<Adapter | null> }
  readonly globals: object
}

interface Adapter {
  readonly features: ReadonlySet<string>
  readonly limits: Readonly<Record<string, number>>
  readonly info: AdapterInfo
  requestDevice(descriptor: object): Promise<object>
}

interface AdapterInfo {
  readonly vendor: string
  readonly architecture: string
  readonly device: string
  readonly description: string
  readonly isFallbackAdapter?: boolean
}

/** What is used of tfjs's package. */
interface TfjsWebgpu {
  readonly WebGPUBackend: new (device: object, info: AdapterInfo) => ReturnType<Tf['backend']>
}

/** Those limits of the adapter that tfjs's kernels ask for; WebGPU gives only small ones unasked. */
const LIMITS = [
  'maxComputeWorkgroupStorageSize',
  'maxComputeWorkgroupsPerDimension',
  'maxStorageBufferBindingSize',
  'maxBufferSize',
  'maxComputeWorkgroupSizeX',
  'maxComputeInvocationsPerWorkgroup',
]

/** Makes Dawn's device and tfjs's backend on it, without a `navigator`, which tfjs's own start would need. */
export async function startWebgpu(places: readonly string[]): Promise<Backend> {
  const dawn = findInstalled('webgpu', places)
  const owner = findInstalled('@tensorflow/tfjs-backend-webgpu', places)
  const { tf, layers } = await tfjsOf(owner)
  const { create, globals } = (await import(pathToFileURL(dawn.require.resolve('webgpu')).href)) as Dawn
  Object.assign(globalThis, globals)
  const adapter = await create([]).requestAdapter({ powerPreference: 'high-performance' })
  if (adapter === null)
    throw new Error('Dawn found no adapter: no GPU, or no driver for it (Vulkan, Metal or Direct3D)')
  const { info, limits } = adapter
  const device = await adapter.requestDevice({
    requiredLimits: Object.fromEntries(LIMITS.map((name) => [name, limits[name]])),
  })
  const { WebGPUBackend } = owner.require('@tensorflow/tfjs-backend-webgpu') as TfjsWebgpu
  tf.registerBackend('webgpu', () => new WebGPUBackend(device, info))
  await activate(tf, 'webgpu')
  return {
    tf,
    layers,
    backend: 'webgpu',
    version: `tfjs-backend-webgpu ${owner.version}, Dawn (webgpu ${dawn.version}) on ${info.description || info.device}`,
    readsSynchronously: false,
    isGpu: info.isFallbackAdapter === undefined ? null : !info.isFallbackAdapter,
  }
}
