/**
 * Binds the kernels: one object per thread, whose members take columns. The plain bodies (`plain.ts`) are the oracle,
 * the fallback and the documentation; only this file binds compiled builds of the same names. Apart from tests and
 * `apart.ts`, no other file imports a body. Some kernels have no compiled twin: those over tokens, sequences, groups, candidate sets
 * and adapters, whose time is small beside the transformer's, and those whose plain body is as fast.
 *
 * @module colonnade/kernels
 */
import { checkGiven, InputError, show } from '../base/errors.ts'
import { beside, hasPlain } from './bodies.ts'
import { bestWebAssemblyBuild, bindCompiled } from './compiled.ts'
import type { ColumnLife, KernelBuild, Kernels } from './kernels.ts'
import { loadModule, type Modules } from './modules.ts'
import { type NativeReport, reportNative } from './native.ts'
import { remember } from './own.ts'

export { Standing } from './advantage/group.ts'
export { ImportanceSum } from './advantage/importance.ts'
export { type BoundLoop, bindColumnLoop, type LoopColumn } from './column-loop.ts'
export { compileKernels } from './compile-own.ts'
export { convolutionScratch, type ImageFilters } from './convolution/convolution.ts'
export { Activation } from './dense/dense.ts'
export type { KernelBuild, Kernels } from './kernels.ts'
export type { ColumnLoop, LoopElement, LoopType } from './loop.ts'
export type { A2cLossSettings } from './loss/a2c.ts'
export { type PolicyLossInputs, type PolicyLossOutputs, type PolicyLossSettings, PolicySum } from './loss/policy.ts'
export { type PpoLossSettings, PpoSum } from './loss/ppo.ts'
export type { RecordedRows } from './loss/rows.ts'
export { TdSum } from './loss/td.ts'
export { TokenSum } from './loss/tokens.ts'
export { NUM_SLOTS } from './optimizer/slots.ts'
export { defineKernels, type OwnBodies, type OwnKernels, type OwnKernelsOptions } from './own.ts'
export { gruScratch } from './recurrent/gru.ts'
export { lstmScratch } from './recurrent/lstm.ts'
export { type GoalPlace, isGoalReached, refusedReward } from './replay/goals.ts'
export type { ReplayedReturns, ReplayedRows } from './replay/returns.ts'
export { Listed } from './rollout/close.ts'
export { shuffleRows } from './rollout/rows.ts'
export { spansOf, type TokenSpans } from './spans.ts'
export { Combination, Comparison, ElementMap } from './tensor/elements.ts'
export { INPUT_BLOCK } from './tensor/integers.ts'
export { DepthwiseTarget } from './tensor/layout.ts'
export { MATMUL_SCRATCH, RESTORED_COLUMNS } from './tensor/matmul.ts'
export { dequantizeRows, quantizeRows } from './tensor/quantized.ts'
export { bytesIn4Bits, dequantizeRows4, LARGEST_4_BITS, quantizeRows4 } from './tensor/quantized4.ts'
export { attentionScratch } from './transformer/attention.ts'
export type { TurnChanges } from './transformer/changes.ts'
export { VOCABULARY_STEP } from './transformer/vocabulary.ts'

/**
 * Binds the kernels of one build to the memory of the columns: one object per thread. If an unshared memory grows, bind
 * them again. `columns`: `lasting`: the place of each column is remembered; `passing`: columns are views made for one
 * call, and their places are looked up each time; `apart`: some columns are in another shared buffer (`Arena.columns`).
 * @throws InputError for a build that cannot be run here.
 */
export function createKernels(
  memory: { readonly buffer: ArrayBufferLike },
  build: KernelBuild | 'best',
  columns: ColumnLife = 'lasting',
): Kernels {
  checkGiven('memory of createKernels', memory, ['buffer'])
  const own = kernelBuildOf(build)
  if (own === 'plain') return remember({ ...beside }, memory, own)
  return remember({ ...beside, ...bindCompiled(memory, own, beside, columns) }, memory, own)
}

/**
 * Loads the compiled module of a build where modules are not files. A page awaits this before `createKernels`; `createWorld` awaits it
 * itself. Returns the bytes of all loaded modules where another thread cannot load them: there it is called with them as `given`.
 * @throws InputError for a build that cannot be run here.
 */
export async function loadKernels(build: KernelBuild | 'best' = 'best', given?: Modules): Promise<Modules | undefined> {
  const own = kernelBuildOf(build)
  return own === 'plain' ? undefined : loadModule(own === 'native' ? 'relaxed' : own, given)
}

/** The builds that can be run here, from the slowest to the fastest; none in a browser without SIMD in WebAssembly. */
export function kernelBuilds(): readonly KernelBuild[] {
  const best = bestWebAssemblyBuild()
  const plain = hasPlain ? (['plain'] as const) : []
  if (best === undefined) return plain
  if (best === 'simd') return [...plain, 'simd']
  return [...plain, 'simd', 'relaxed', ...(examineNative().level === null ? [] : (['native'] as const))]
}

/** The processor level and the origin of the native kernels here, or why they do not run. */
export function examineNative(): NativeReport {
  if (bestWebAssemblyBuild() !== 'relaxed') return { level: null, from: null, why: 'they stand on the relaxed build' }
  return reportNative()
}

/** Level and origin of native kernels, as runs record them; null for other builds. */
export function describeNative(build: KernelBuild): string | null {
  const { level, from } = examineNative()
  return build === 'native' ? `${level}, from ${from}` : null
}

/** The fastest build that can be run here. @throws InputError if there is none. */
export function bestKernelBuild(): KernelBuild {
  const best = kernelBuilds().at(-1)
  if (best !== undefined) return best
  throw new InputError('kernels of this browser', 'no SIMD in WebAssembly', 'a browser that has it')
}

/** A build by name, `best` (default) for the fastest that can be run here. @throws InputError for one that cannot be run here. */
export function kernelBuildOf(name: KernelBuild | 'best' = 'best'): KernelBuild {
  const builds = kernelBuilds()
  if (name === 'best' || builds.length === 0) return bestKernelBuild()
  if (builds.includes(name)) return name
  const why = name === 'native' ? ` (native: ${examineNative().why})` : ''
  throw new InputError('kernels', show(name), `best, or one of ${builds.join(', ')} in this runtime${why}`)
}

/** Whether two builds, by their names in checkpoints, give the same bits. */
export function haveSameBits(build: string, other: string): boolean {
  const ofBits = (name: string) => (name === 'native' ? 'relaxed' : name)
  return ofBits(build) === ofBits(other)
}
