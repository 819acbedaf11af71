/** Every SIMD body, by the name of its plain twin. */
export * from './dense/dense.simd'
export * from './physics/cart-pole.simd'
