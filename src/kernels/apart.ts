/** Plain bodies for columns in several memories, which compiled builds do not take. Not part of `colonnade/kernels`. */
export { importanceWeights, weighAdvantages } from './advantage/importance.ts'
export { vtrace } from './advantage/vtrace.ts'
