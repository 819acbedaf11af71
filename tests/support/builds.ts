/** The builds of kernels that tests compare. */
import { createKernels } from '../../src/kernels/bind.ts'
import { bindCompiled } from '../../src/kernels/compiled.ts'
import type { KernelBuild, Kernels } from '../../src/kernels/kernels.ts'
import { nativeLevels } from '../../src/kernels/native.ts'
import { remember } from '../../src/kernels/own.ts'
import { isThorough } from './tiers.ts'

/** A build, or the native one at a level: `native/avx2`. */
export type BenchBuild = KernelBuild | `native/${string}`

/**
 * The levels at which this machine runs native bodies: in the fast tier the least and the best, which has all bodies but those
 * of integers in common with the one below.
 */
export const levels: BenchBuild[] = nativeLevels()
  .filter((_, i, { length }) => isThorough || i === 0 || i === length - 1)
  .map((level) => `native/${level}` as const)

/** Kernels of a build over a memory, and kernels of one's own bound to the same level. */
export function kernelsOf(memory: { readonly buffer: ArrayBufferLike }, build: BenchBuild): Kernels {
  const level = build.split('/')[1]
  if (level === undefined) return createKernels(memory, build as KernelBuild)
  const plain = createKernels(memory, 'plain')
  return remember({ ...plain, ...bindCompiled(memory, 'native', plain, 'lasting', level) }, memory, 'native', level)
}
