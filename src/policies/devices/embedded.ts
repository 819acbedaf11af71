/** The devices without a native addon: tfjs's wasm backend with SIMD, and its plain JavaScript one. */
import type { Backend } from './backend.ts'
import { activate, ownLayers, ownPackage, ownTf } from './tfjs.ts'
import type { WasmBackend } from './wasm/heap.ts'

/** Starts tfjs on WebAssembly with SIMD, one thread. */
export async function startWasm(): Promise<Backend> {
  const tf = await ownTf()
  const { version_wasm } = await ownPackage<{ version_wasm: string }>('@tensorflow/tfjs-backend-wasm')
  if (!(await tf.env().getAsync('WASM_HAS_SIMD_SUPPORT'))) throw new Error('this runtime has no WebAssembly SIMD')
  // In Node tfjs always uses its single-threaded build, and finds the .wasm files next to its own JavaScript.
  await withoutItsListeners(() => activate(tf, 'wasm'))
  const { registerWasmKernels } = await import('./wasm/register.ts')
  registerWasmKernels(tf, tf.backend() as unknown as WasmBackend)
  return {
    tf,
    layers: ownLayers,
    backend: 'wasm',
    version: `tfjs-backend-wasm ${version_wasm}`,
    readsSynchronously: true,
    isGpu: false,
  }
}

/** Starts tfjs in plain JavaScript: slow, but it runs on every machine. */
export async function startCpu(): Promise<Backend> {
  const tf = await ownTf()
  // A TensorFlow binding in another package tree registers its own copy, of the same version.
  if (tf.findBackendFactory('cpu') === null) await ownPackage('@tensorflow/tfjs-backend-cpu')
  await activate(tf, 'cpu')
  // Without this the backend prints an advertisement for tfjs-node at its first tensor.
  Object.assign(tf.backend(), { firstUse: false })
  return {
    tf,
    layers: ownLayers,
    backend: 'cpu',
    version: `tfjs-backend-cpu ${tf.version_core}`,
    readsSynchronously: true,
    isGpu: false,
  }
}

/**
 * Emscripten's loader listens for uncaught errors and rethrows them, so that any error of the program would end it with exit code 7.
 * Removes its listeners, which are recognized by their source.
 */
async function withoutItsListeners(work: () => Promise<void>): Promise<void> {
  const events = ['uncaughtException', 'unhandledRejection']
  const before = events.map((event) => process.rawListeners(event))
  await work()
  for (const [i, event] of events.entries()) {
    for (const listener of process.rawListeners(event)) {
      const isIts =
        !before[i]!.includes(listener) && /^function \((ex|reason)\) {[\s\S]*throw \1;[\s\S]*}$/.test(String(listener))
      if (isIts) process.off(event, listener as () => void)
    }
  }
}
