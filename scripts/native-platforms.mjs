// For which platforms there are native kernels, and at which levels of their processors.

const AVX512 = ['avx512f', 'avx512bw', 'avx512dq', 'avx512vl']
const AVX512_FLAGS = ['-mavx2', '-mfma', ...AVX512.map((feature) => `-m${feature}`), '-mprefer-vector-width=512']

/**
 * The levels of a processor, the best last, by Node's name of its architecture: what it must have, by the names of
 * native-glue.mjs, and the compiler's flags for it. `beyond`: only the sources named are compiled for it, and all other bodies are
 * those of that level.
 */
export const LEVELS = {
  x64: {
    avx2: { features: ['avx2', 'fma'], flags: ['-mavx2', '-mfma'] },
    avx512: { features: AVX512, flags: AVX512_FLAGS },
    avx512vnni: {
      features: [...AVX512, 'avx512vnni'],
      flags: [...AVX512_FLAGS, '-mavx512vnni'],
      beyond: { level: 'avx512', sources: ['integers.native.c', 'integers4.native.c'] },
    },
  },
  // Every 64-bit processor of ARM has NEON, with fused multiply-add; most have dot products of bytes.
  arm64: {
    neon: { features: [], flags: [] },
    dotprod: {
      features: ['dotprod'],
      flags: ['-mcpu=generic+dotprod'],
      beyond: { level: 'neon', sources: ['integers.native.c', 'integers4.native.c'] },
    },
  },
}

/**
 * Platforms for which packages are made, by the end of the package's name: what npm looks at before it installs one, and the
 * target of `zig cc`. glibc 2.28 is the oldest that Node 20 runs on.
 */
export const PLATFORMS = {
  'linux-x64': { os: 'linux', cpu: 'x64', libc: 'glibc', target: 'x86_64-linux-gnu.2.28' },
  'linux-x64-musl': { os: 'linux', cpu: 'x64', libc: 'musl', target: 'x86_64-linux-musl' },
  'linux-arm64': { os: 'linux', cpu: 'arm64', libc: 'glibc', target: 'aarch64-linux-gnu.2.28' },
  'linux-arm64-musl': { os: 'linux', cpu: 'arm64', libc: 'musl', target: 'aarch64-linux-musl' },
  'darwin-x64': { os: 'darwin', cpu: 'x64', target: 'x86_64-macos' },
  'darwin-arm64': { os: 'darwin', cpu: 'arm64', target: 'aarch64-macos' },
  'win32-x64': { os: 'win32', cpu: 'x64', target: 'x86_64-windows-gnu' },
}

/** The name of a platform's package; src/kernels/native.ts looks for it. */
export const packageName = (platform) => `colonnade-native-${platform}`
