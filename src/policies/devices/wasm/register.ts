/**
 * Registers our kernels in tfjs's wasm backend. Its own set has gaps (gathers, convolutions and einsums have no gradient, integers no
 * matrix product), slow kernels (a transposed matrix product, tanh) and wrong ones. Ours are added or replace them under the same names.
 * They are our builds, bound to tfjs's memory (`heap.ts`), which is not shared; `kernels/tensor/` has those that only tensors need.
 */
import type { KernelFunc } from '@tensorflow/tfjs-core'
import { bestKernelBuild } from '../../../kernels/bind.ts'
import type { KernelBuild } from '../../../kernels/kernels.ts'
import { layerGradients } from '../layers.ts'
import { type ManyOutputs, recurrentKernels } from '../recurrent.ts'
import { convolutionKernels } from './convolution.ts'
import { einsumGradient, einsumKernels } from './einsum.ts'
import { elementKernels } from './elements.ts'
import { Heap, type Kernel, type Tfjs, type WasmBackend } from './heap.ts'
import { layerKernels } from './layers.ts'
import { layoutKernels } from './layout.ts'
import { matmulKernels } from './matmul.ts'
import { poolingKernels } from './pooling.ts'

/** The registered kernels, and how to undo the registration. */
export interface Registration {
  /** Names of kernels that tfjs lacked. */
  readonly added: readonly string[]
  /** Names of kernels that replace tfjs's own. */
  readonly replaced: readonly string[]
  /** Restores the backend. */
  undo(): void
}

export interface RegisterOptions {
  /** `all`, or only kernels that tfjs's backend lacks. */
  readonly which?: 'all' | 'missing'
  /** The kernel build; default: the fastest that this runtime supports. */
  readonly build?: KernelBuild
}

/** Registers our kernels with tfjs's started wasm backend, once. `tf` is the core with which the backend was loaded. */
export function registerWasmKernels(
  tf: Tfjs,
  backend: WasmBackend,
  { which = 'all', build = bestKernelBuild() }: RegisterOptions = {},
): Registration {
  const heap = new Heap(tf, backend, build)
  const theirs = new Map(tf.getKernelsForBackend('wasm').map((config) => [config.kernelName, config]))
  const ours: Readonly<Record<string, Kernel | ManyOutputs>> = {
    ...convolutionKernels(heap),
    ...einsumKernels(heap),
    ...elementKernels(heap),
    ...layerKernels(heap),
    ...layoutKernels(heap),
    ...matmulKernels(heap),
    ...poolingKernels(heap),
    ...recurrentKernels(heap.runColumns),
  }
  const names = Object.keys(ours).toSorted()
  const added = names.filter((name) => !theirs.has(name))
  const replaced = which === 'all' ? names.filter((name) => theirs.has(name)) : []
  for (const kernelName of replaced) tf.unregisterKernel(kernelName, 'wasm')
  for (const kernelName of [...added, ...replaced]) {
    tf.registerKernel({ kernelName, backendName: 'wasm', kernelFunc: ours[kernelName] as KernelFunc })
  }
  const gradients = [einsumGradient(tf), ...layerGradients(tf)]
  const registered = gradients.filter(({ kernelName }) => tf.getGradient(kernelName) === undefined)
  for (const gradient of registered) tf.registerGradient(gradient)
  return {
    added,
    replaced,
    undo() {
      for (const kernelName of [...added, ...replaced]) tf.unregisterKernel(kernelName, 'wasm')
      for (const kernelName of replaced) tf.registerKernel(theirs.get(kernelName)!)
      for (const { kernelName } of registered) tf.unregisterGradient(kernelName)
      heap.close()
    },
  }
}
