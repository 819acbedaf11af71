/** The body of `native.ts` in a page, which has no native kernels. */
import { InputError } from '../base/errors.ts'
import type * as node from './native.ts'

const WHY = 'a page cannot load addons'

export const nativeLevels: typeof node.nativeLevels = () => []

export const reportNative: typeof node.reportNative = () => ({ level: null, from: null, why: WHY })

export const nativeBodies: typeof node.nativeBodies = () => {
  throw new InputError('kernels', `"native", but ${WHY}`, 'another build')
}
