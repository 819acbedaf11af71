/**
 * Where tensors live: the contract of devices, and their finding. Networks beyond the fused perceptron run on tfjs, on the
 * best backend that the machine has. tfjs has one engine a process, so one device is active at a time; starting another
 * switches to it. What was asked for by name is started or is an error: never is another put in its place.
 *
 * `startDevice()` tries the devices best first and says what it passed over and why, WebGPU on a software adapter among
 * them. `device.tf` is tfjs as the backend's own package tree has it, and makes all tensors for it. `docs/devices.md`
 * has names, limits and speeds.
 */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import type { Backend } from './backend.ts'
import { startCpu, startWasm } from './embedded.ts'
import { registerRecurrence } from './recurrent.ts'
import { startTensorflow } from './tensorflow.ts'
import { activate, FIRST_DEVICE } from './tfjs.ts'
import { startWebgpu } from './webgpu.ts'

/** The devices, best first: in this order they are tried when none is named. */
export const deviceNames = ['tfjs-node-gpu', 'tfjs-node', 'webgpu', 'wasm', 'cpu'] as const

/** The name of a device, each a package that the user installs; `wasm` and `cpu` run on every machine. */
export type DeviceName = (typeof deviceNames)[number]

/** A device that was started. */
export interface Device extends Backend {
  readonly name: DeviceName
  /** The devices that were tried first and not taken, each with why; none where the device was named. */
  readonly passedOver: readonly { readonly name: DeviceName; readonly why: string }[]
}

const starters: Readonly<Record<DeviceName, (places?: readonly string[]) => Promise<Backend>>> = {
  'tfjs-node-gpu': (places) => startTensorflow('tfjs-node-gpu', places),
  'tfjs-node': (places) => startTensorflow('tfjs-node', places),
  webgpu: startWebgpu,
  wasm: startWasm,
  cpu: startCpu,
}

/**
 * Starts the named device, or else the first of `deviceNames` that can start, and makes it tfjs's active one. WebGPU without
 * a GPU is taken only by name. A device that was started before is only made active again. Throws InputError, with the
 * cause, if the named device cannot start.
 *
 * @example
 * const { tf, name, passedOver } = await startDevice()
 * const product = tf.matMul(tf.ones([2, 3]), tf.ones([3, 2]))
 * console.log(name, passedOver, await product.data())
 */
export function startDevice(name?: DeviceName): Promise<Device> {
  return startDeviceFrom(undefined, name)
}

/** As `startDevice`, with the files or folders (ending in a slash) from which `packages.ts` looks for those of a device. */
export function startDeviceFrom(places: readonly string[] | undefined, name?: DeviceName): Promise<Device> {
  if (name !== undefined && !deviceNames.includes(name)) {
    return Promise.reject(
      /gpu|cuda|metal/i.test(String(name)) ? unknownGpu(name) : unknownWord('device', name, deviceNames),
    )
  }
  // One after another: tfjs answers false to a change of backend that a later one has overtaken.
  const device = queue.then(() => (name === undefined ? startBest(places) : startNamed(name, places)))
  queue = device.catch(() => undefined)
  return device
}

/** "gpu" is one letter from "cpu", which is the last that who asks for it wants. */
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

/** Why a device that starts is taken only where it is named; null for those that are taken without. */
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
