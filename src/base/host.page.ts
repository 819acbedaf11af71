/** The body of `host.ts` in a page. */
import type * as node from './host.ts'

export const runtime: typeof node.runtime = 'page'
/** Pages of one site share their files. */
export const processNumber: typeof node.processNumber = Math.floor(Math.random() * 2 ** 31)

export const tell: typeof node.tell = (message) => console.warn(`colonnade: ${message}`)

export const warn: typeof node.warn = (message, told) =>
  console.warn(told === undefined ? message : `[${told.code}] ${message}\n${told.detail}`)

export const haveSameBytes: typeof node.haveSameBytes = (a, b) => {
  const inWords = [a, b].every(({ byteOffset, byteLength }) => byteOffset % 4 === 0 && byteLength % 4 === 0)
  const [ours, theirs] = [a, b].map(({ buffer, byteOffset, byteLength }) =>
    inWords ? new Int32Array(buffer, byteOffset, byteLength / 4) : new Uint8Array(buffer, byteOffset, byteLength),
  )
  return ours!.every((value, i) => value === theirs![i])
}

export const allowListeners: typeof node.allowListeners = () => {} // A page does not warn.

/** A page sees only its heap, and not in every browser. Numbers that it cannot see are 0. */
export const memoryInUse: typeof node.memoryInUse = () => {
  const { memory } = performance as Performance & { readonly memory?: { readonly usedJSHeapSize: number } }
  return { heap: memory?.usedJSHeapSize ?? 0, arrayBuffers: 0, resident: 0 }
}
