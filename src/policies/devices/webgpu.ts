/** WebGPU in Node: tfjs's backend (package `@tensorflow/tfjs-backend-webgpu`) over Dawn (package `webgpu`). */
import { findPackage, importPackage } from '../../base/files/packages.ts'
import type { Backend } from './backend.ts'
import { activate, ownLayers, type Tf, tfjsOf } from './tfjs.ts'

interface Dawn {
  create(options: readonly string[]): Gpu
  readonly globals: object
}

interface Gpu {
  requestAdapter(options: object): Promise<Adapter | null>
}

interface Adapter {
  readonly features: ReadonlySet<string>
  readonly limits: Readonly<Record<string, number>>
  readonly info: AdapterInfo
  requestDevice(descriptor: object): Promise<GpuDevice>
}

interface GpuDevice {
  readonly lost: Promise<{ readonly message: string }>
  addEventListener(event: 'uncapturederror', listener: (event: { error: { message: string } }) => void): void
}

interface AdapterInfo {
  readonly vendor: string
  readonly architecture: string
  readonly device: string
  readonly description: string
  readonly isFallbackAdapter?: boolean
}

interface TfjsWebgpu {
  readonly WebGPUBackend: new (device: GpuDevice, info: AdapterInfo) => ReturnType<Tf['backend']>
}

/** Limits of the adapter that tfjs's kernels need; WebGPU's defaults are small. */
const LIMITS = [
  'maxComputeWorkgroupStorageSize',
  'maxComputeWorkgroupsPerDimension',
  'maxStorageBufferBindingSize',
  'maxBufferSize',
  'maxComputeWorkgroupSizeX',
  'maxComputeInvocationsPerWorkgroup',
]

/** A reference that keeps Dawn alive: it lives only as long as the object that `create` returns. */
let gpu: Gpu

export async function startWebgpu(places?: readonly string[]): Promise<Backend> {
  const dawn = findPackage('webgpu', places)
  const owner = findPackage('@tensorflow/tfjs-backend-webgpu', places)
  const { tf, layers } = tfjsOf(owner)
  await ownLayers() // Registers the gradients, in the process's only registry; webgpu's tree may lack tfjs-layers.
  const { create, globals } = await importPackage<Dawn>('webgpu', undefined, [dawn.manifest])
  Object.assign(globalThis, globals)
  gpu ??= create([])
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' })
  if (adapter === null)
    throw new Error('Dawn found no adapter: no GPU, or no driver for it (Vulkan, Metal or Direct3D)')
  const { info, limits } = adapter
  const device = await adapter.requestDevice({
    requiredLimits: Object.fromEntries(LIMITS.map((name) => [name, limits[name]])),
  })
  const { WebGPUBackend } = owner.require('@tensorflow/tfjs-backend-webgpu') as TfjsWebgpu
  const made = withNavigator(() => new WebGPUBackend(device, info))
  failReads(made, device)
  tf.registerBackend('webgpu', () => made)
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

/**
 * An operation that WebGPU rejects (for example a buffer that is too large) leaves zeros in its result, and tfjs continues with them.
 * After the first failure every read throws, since the device's contents are unreliable.
 */
function failReads(backend: ReturnType<Tf['backend']>, device: GpuDevice): void {
  let failure: string | undefined
  device.addEventListener('uncapturederror', ({ error }) => {
    failure ??= error.message
  })
  void device.lost.then(({ message }) => {
    failure ??= message
  })
  const read = backend.read.bind(backend)
  backend.read = async (dataId) => {
    const values = await read(dataId)
    if (failure !== undefined) throw new Error(`device webgpu has failed, and needs a new process: ${failure}`)
    return values
  }
}

/**
 * tfjs's constructor requires `navigator.gpu` without using it. It is removed afterwards, since other code would take Node for a browser.
 */
function withNavigator<T>(make: () => T): T {
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator')
  Object.defineProperty(globalThis, 'navigator', { configurable: true, value: { gpu } })
  try {
    return make()
  } finally {
    if (before === undefined) delete (globalThis as { navigator?: unknown }).navigator
    else Object.defineProperty(globalThis, 'navigator', before)
  }
}
