/** The body of `native.ts` in a page, which has no native kernels. */
import type * as node from './native.ts'

const WHY = 'a page cannot load addons'

export const nativeLevels: typeof node.nativeLevels = () => []

export const reportNative: typeof node.reportNative = () => ({ level: null, from: null, why: WHY })

/** `createKernels` refuses the build before. */
export const nativeBodies: typeof node.nativeBodies = () => {
  throw new Error(WHY)
}

export const bindNative = nativeBodies as unknown as typeof node.bindNative

export const placesOfNative = nativeBodies as unknown as typeof node.placesOfNative
