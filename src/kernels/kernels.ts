/** The contract of the kernels: their names and signatures, and the builds that have them. */
import type * as plain from './plain.ts'

/**
 * Every kernel, by name. Those without SIMD bodies (over tokens, sequences, groups, candidate sets and adapters: little
 * beside the transformer that evaluates the tokens) are plain in every build, and take arrays in any memory.
 */
export type Kernels = typeof plain

/**
 * Which bodies: `plain` TypeScript, WebAssembly with 128-bit SIMD, that with fused multiply-add, or that with native bodies for
 * some kernels. Each has bits of its own, but `native`, which has those of `relaxed`.
 */
export type KernelBuild = 'plain' | CompiledBuild

/** `simd` is WebAssembly's 128-bit SIMD; `relaxed` has multiply-add besides, where the runtime rounds it once. */
export type WebAssemblyBuild = 'simd' | 'relaxed'

/** `native` is `relaxed`, with C bodies of the same bits for some kernels where they have been built. */
export type CompiledBuild = WebAssemblyBuild | 'native'

/** Where a column begins in the memory. */
export type At = (column: ArrayBufferView) => number

/**
 * Whether columns stay, and where they lie is remembered; or each is a view made for one call, as those of a device's tensors are;
 * or they stay, and some lie apart, in another shared buffer than the memory, where only native and plain bodies reach them.
 */
export type ColumnLife = 'lasting' | 'passing' | 'apart'
