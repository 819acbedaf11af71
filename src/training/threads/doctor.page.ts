/** What a page can use of its browser, and why not: threads, kernels, a GPU and files that outlive it. */
import { numCores } from '../../base/threads/cores.ts'
import { kernelBuilds } from '../../kernels/bind.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'

/** Something that a page may lack. */
export interface PageCheck {
  readonly name:
    | 'crossOriginIsolated'
    | 'SharedArrayBuffer'
    | 'Atomics.waitAsync'
    | 'WebAssembly SIMD'
    | 'WebAssembly relaxed SIMD'
    | 'WebGPU'
    | 'private file system'
  readonly isThere: boolean
  /** What it lacks; null where it is there. */
  readonly why: string | null
}

/** What `doctor` found. */
export interface PageReport {
  /** The build of the kernels that a world takes; null where none can be run, so that no world can be made. */
  readonly kernels: KernelBuild | null
  /** How many threads the machine runs at once, by `navigator.hardwareConcurrency`. */
  readonly cores: number
  /** How many threads a training can use here. */
  readonly threads: number
  /** Why a training has one thread; null where it can have several. */
  readonly why: string | null
  readonly checks: readonly PageCheck[]
}

const HEADERS =
  'the page has to be served with Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp'

/**
 * Examines what this page can use of its browser.
 * @example
 * const { threads, why } = await doctor() // 1, and the headers that the page lacks
 */
export async function doctor(): Promise<PageReport> {
  const kernels = kernelBuilds().at(-1) ?? null
  const { crossOriginIsolated: isIsolated = false, isSecureContext: isSecure = false, navigator } = globalThis
  const check = (name: PageCheck['name'], isThere: boolean, why: string): PageCheck => {
    return { name, isThere, why: isThere ? null : why }
  }
  const unsafe = 'the page has to be served by HTTPS, or from localhost'
  const checks = [
    check('crossOriginIsolated', isIsolated, isSecure ? HEADERS : `${unsafe}, and ${HEADERS}`),
    check('SharedArrayBuffer', typeof SharedArrayBuffer === 'function', HEADERS),
    check('Atomics.waitAsync', typeof Atomics.waitAsync === 'function', 'the browser has no Atomics.waitAsync'),
    check('WebAssembly SIMD', kernels !== null, 'the browser or its processor has no SIMD in WebAssembly'),
    check(
      'WebAssembly relaxed SIMD',
      kernels === 'relaxed',
      'the browser has no relaxed SIMD in WebAssembly, or its processor no fused multiply-add',
    ),
    check(...(await webgpu(navigator, isSecure ? null : unsafe))),
    check(...(await files(navigator, isSecure ? null : unsafe))),
  ]
  const cores = navigator?.hardwareConcurrency ?? 1
  const lacking = checks.slice(0, 3).find(({ isThere }) => !isThere)
  const why = lacking?.why ?? (cores > 1 ? null : 'the machine runs one thread at once')
  return { kernels, cores, threads: numCores(), why, checks }
}

type Asked = [name: PageCheck['name'], isThere: boolean, why: string]

async function webgpu(navigator: Navigator | undefined, unsafe: string | null): Promise<Asked> {
  if (navigator?.gpu === undefined) return ['WebGPU', false, unsafe ?? 'the browser has no WebGPU']
  const adapter = await navigator.gpu.requestAdapter().catch(() => null)
  return ['WebGPU', adapter !== null, 'the browser has WebGPU, but no adapter (no GPU, or it is blocked)']
}

async function files(navigator: Navigator | undefined, unsafe: string | null): Promise<Asked> {
  const name = 'private file system'
  if (navigator?.storage?.getDirectory === undefined) {
    return [name, false, unsafe ?? 'the browser has no private file system']
  }
  const refused = await navigator.storage.getDirectory().then(
    () => null,
    (error: unknown) => String(error),
  )
  return [name, refused === null, refused ?? '']
}
