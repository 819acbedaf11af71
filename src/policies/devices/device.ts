/**
 * The contract of devices, which hold tensors, and how they are found. Networks of the user's own, and ready-made ones with `device`,
 * run on tfjs. tfjs has one engine per process, so one device is active at a time; starting another switches to it. A device
 * requested by name is started or is an error, and never replaced by another.
 *
 * `startDevice()` tries the devices best first and reports the skipped ones with reasons, such as WebGPU on a software adapter.
 * `device.tf` is tfjs from the backend's own package tree; use it to create all tensors for the device. `docs/devices.md` has names,
 * limits and speeds.
 */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import type { Backend } from './backend.ts'
import { registerRecurrence } from './recurrent.ts'
import { starters } from './starters.ts'
import { activate, FIRST_DEVICE } from './tfjs.ts'

/** The devices, best first, in the order in which they are tried by default. */
export const deviceNames = ['tfjs-node-gpu', 'tfjs-node', 'webgpu', 'wasm', 'cpu'] as const

/** The name of a device. Each is a package that the user installs; `wasm` and `cpu` run on every machine. */
export type DeviceName = (typeof deviceNames)[number]

/** A started device. */
export interface Device extends Backend {
  readonly name: DeviceName
  /** The devices that were tried before and skipped, with reasons; empty for a device requested by name. */
  readonly passedOver: readonly { readonly name: DeviceName; readonly why: string }[]
}

/**
 * Starts the named device, by default the first of `deviceNames` that can start, and makes it tfjs's active one. WebGPU without a GPU is
 * used only by name. A device that is already started becomes active again.
 * @throws InputError, with the cause, if the named device cannot start.
 * @example
 * const { tf, name, passedOver } = await startDevice()
 * const product = tf.matMul(tf.ones([2, 3]), tf.ones([3, 2]))
 * console.log(name, passedOver, await product.data())
 */
export function startDevice(name?: DeviceName): Promise<Device> {
  return startDeviceFrom(undefined, name)
}

/** As `startDevice`, with the files or folders (ending in a slash) from which a device's packages are searched. */
export function startDeviceFrom(places: readonly string[] | undefined, name?: DeviceName): Promise<Device> {
  if (name !== undefined && !deviceNames.includes(name)) {
    return Promise.reject(
      /gpu|cuda|metal/i.test(String(name)) ? unknownGpu(name) : unknownWord('device', name, deviceNames),
    )
  }
  // One after another: tfjs returns false for a change of backend that a later one has overtaken.
  const device = queue.then(() => (name === undefined ? startBest(places) : startNamed(name, places)))
  queue = device.catch(() => undefined)
  return device
}

/** The error for "gpu": its nearest name, "cpu", would be a bad suggestion. */
function unknownGpu(name: unknown): InputError {
  const expected = `one of ${deviceNames.join(', ')}; on a GPU run tfjs-node-gpu (CUDA: npm install @tensorflow/tfjs-node-gpu) and webgpu (npm install @tensorflow/tfjs-backend-webgpu webgpu), and none named takes the best that starts`
  return new InputError('device', show(name), expected)
}

let queue: Promise<unknown> = Promise.resolve()
const started = new Map<DeviceName, Device>()
let best: Device | undefined

async function startNamed(name: DeviceName, places?: readonly string[]): Promise<Device> {
  try {
    return await start(name, places)
  } catch (cause) {
    throw new InputError('device', show(name), `a device that can start here; ${reasonOf(cause)}`, { cause })
  }
}

async function startBest(places?: readonly string[]): Promise<Device> {
  if (best !== undefined) {
    await activate(best.tf, best.backend)
    return best
  }
  const passedOver: { name: DeviceName; why: string }[] = []
  for (const name of deviceNames) {
    try {
      const device = await start(name, places)
      const why = onlyIfNamed(device)
      if (why === null) {
        best = { ...device, passedOver }
        return best
      }
      passedOver.push({ name, why })
    } catch (cause) {
      passedOver.push({ name, why: reasonOf(cause) })
    }
  }
  const reasons = passedOver.map(({ name, why }) => `${name}: ${why}`).join('; ')
  const needed = `one for the tensors of networks on tfjs (npm install ${FIRST_DEVICE} gives every machine one)`
  throw new InputError('device', 'none', `${needed}; tried: ${reasons}`)
}

/** Why a device that starts is used only by name; null if it is also used by default. */
export function onlyIfNamed({ name, isGpu }: Pick<Device, 'name' | 'isGpu'>): string | null {
  return name === 'webgpu' && isGpu === false ? 'its adapter is software, far slower than wasm' : null
}

async function start(name: DeviceName, places?: readonly string[]): Promise<Device> {
  const known = started.get(name)
  if (known !== undefined) {
    await activate(known.tf, known.backend)
    return known
  }
  const active = [...started.values()].find(({ tf, backend }) => tf.getBackend() === backend)
  try {
    const device: Device = { name, ...(await starters[name](places)), passedOver: [] }
    if (device.readsSynchronously) registerRecurrence(device.tf, device.backend)
    started.set(name, device)
    return device
  } catch (cause) {
    if (active !== undefined) await activate(active.tf, active.backend)
    throw cause
  }
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause)
}
