/** The contract of the kernels: their names and signatures, and the builds that have them. */
import type * as plain from './plain.ts'

/**
 * Every kernel, by name. Kernels without SIMD bodies (over tokens, sequences, groups, candidate sets and adapters,
 * whose time is small beside the transformer's) are plain in every build, and take arrays in any memory.
 */
export type Kernels = typeof plain

/**
 * The bodies of a build: `plain` TypeScript, `simd` (WebAssembly with 128-bit SIMD), `relaxed` (with fused
 * multiply-add), or `native` (with native bodies for some kernels). The builds give different bits, except that
 * `native` gives those of `relaxed`.
 */
export type KernelBuild = 'plain' | CompiledBuild

/** `simd` is WebAssembly's 128-bit SIMD; `relaxed` has multiply-add besides, where the runtime rounds it once. */
export type WebAssemblyBuild = 'simd' | 'relaxed'

/** `native` is `relaxed`, with C bodies of the same bits for some kernels where they have been built. */
export type CompiledBuild = WebAssemblyBuild | 'native'

/** Where a column begins in the memory. */
export type At = (column: ArrayBufferView) => number

/**
 * `lasting`: columns stay, and their places are remembered. `passing`: each is a view made for one call, such as a
 * device's tensor. `apart`: columns stay, and some are in a second shared buffer that only native and plain bodies
 * reach.
 */
export type ColumnLife = 'lasting' | 'passing' | 'apart'
