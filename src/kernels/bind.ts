/**
 * Kernels are bound once: one object a thread, whose members take columns. The plain bodies (`plain.ts`) are the oracle, the
 * fallback and the documentation; compiled builds of the same names are bound here and nowhere else.
 *
 * Nobody else imports a body, but its test. Kernels over tokens, sequences, groups, candidate sets and adapters have no
 * SIMD twin: they are small beside the transformer.
 */
import { InputError, show } from '../errors.ts'
import { bestCompiledBuild, bindCompiled, type CompiledBuild } from './compiled.ts'
import { remember } from './own.ts'
import * as plain from './plain.ts'

export { Standing } from './advantage/group.ts'
export { ImportanceSum } from './advantage/importance.ts'
export { Activation } from './dense/dense.ts'
export type { A2cLossSettings } from './loss/a2c.ts'
export { type PolicyLossInputs, type PolicyLossOutputs, type PolicyLossSettings, PolicySum } from './loss/policy.ts'
export { type PpoLossSettings, PpoSum } from './loss/ppo.ts'
export type { RecordedRows } from './loss/rows.ts'
export { TokenSum } from './loss/tokens.ts'
export { NUM_SLOTS } from './optimizer/slots.ts'
export { defineKernels, type OwnBodies, type OwnKernels, type OwnKernelsOptions } from './own.ts'
export { gruScratch } from './recurrent/gru.ts'
export { lstmScratch } from './recurrent/lstm.ts'
export { Listed } from './rollout/close.ts'
export { shuffleRows } from './rollout/rows.ts'
export { spansOf, type TokenSpans } from './spans.ts'
export { Combination, Comparison, ElementMap } from './tensor/elements.ts'
export { DepthwiseTarget } from './tensor/layout.ts'
export { MATMUL_SCRATCH } from './tensor/matmul.ts'
export { dequantizeRows, quantizeRows } from './transformer/quantized.ts'
export { VOCABULARY_STEP } from './transformer/vocabulary.ts'

/**
 * Every kernel, by name. Those without SIMD bodies (over tokens, sequences, groups, candidate sets and adapters: little
 * beside the transformer that evaluates the tokens) are plain in every build, and take arrays in any memory.
 */
export type Kernels = typeof plain

/** Which bodies: `plain` TypeScript, WebAssembly with 128-bit SIMD, or that with fused multiply-add. */
export type KernelBuild = 'plain' | CompiledBuild

/** Binds the kernels of one build to the memory in which the columns lie: one object a thread. */
export function createKernels(memory: { readonly buffer: ArrayBufferLike }, build: KernelBuild): Kernels {
  if (build === 'plain') return remember({ ...plain }, memory, build)
  const best = bestCompiledBuild()
  if ((build === 'relaxed' && best === 'relaxed') || (build === 'simd' && best !== undefined)) {
    return remember({ ...plain, ...bindCompiled(memory, build, plain) }, memory, build)
  }
  const valid = best === undefined ? 'plain' : best === 'simd' ? 'plain or simd' : 'plain, simd or relaxed'
  throw new InputError('kernels', show(build), `${valid} in this runtime`)
}

/** The fastest build that this runtime can run. */
export function bestKernelBuild(): KernelBuild {
  return bestCompiledBuild() ?? 'plain'
}
