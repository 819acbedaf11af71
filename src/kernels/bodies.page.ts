/**
 * The body of `bodies.ts` in a page, which would load the plain bodies of all kernels and never call those with compiled twins, but two: they
 * serve columns of f64.
 */
import { InputError } from '../base/errors.ts'
import type * as node from './bodies.ts'
import type { Kernels } from './kernels.ts'
import { cartPoleStep } from './physics/cart-pole.ts'
import { pendulumStep } from './physics/pendulum.ts'
import * as uncompiled from './uncompiled.ts'

export const hasPlain: typeof node.hasPlain = false

export const beside: typeof node.beside = { ...uncompiled, cartPoleStep, pendulumStep } as Kernels

export const allPlain: typeof node.allPlain = () => {
  throw new InputError('kernels of this browser', 'no SIMD in WebAssembly', 'a browser that has it')
}
