/**
 * The body of `bodies.ts` in a page, which would load the plain bodies of all kernels and never call those with compiled twins, but two: they
 * serve columns of f64.
 */
import type { Kernels } from './kernels.ts'
import { cartPoleStep } from './physics/cart-pole.ts'
import { pendulumStep } from './physics/pendulum.ts'
import * as uncompiled from './uncompiled.ts'

export const hasPlain: boolean = false

export const beside: Kernels = { ...uncompiled, cartPoleStep, pendulumStep } as Kernels
