/**
 * Every kernel, by name: the plain bodies, which are the oracle, the fallback and the documentation. Each kernel has a
 * line here; its compiled twin, if any, has the same name in a C file beside the plain body (`dense.native.c` beside
 * `dense.ts`). A row's result does not depend on the other rows, so `infer` equals `evaluate` bit for bit, and a lane
 * alone equals the lane among a thousand. Plain bodies call `Math.exp`, `log`, `tanh`, `sin`, `cos` and `sqrt`, which
 * gave equal results on Node 20, 22 and 24, and never `Math.pow`. Other runtimes give other last bits of f64 there, so
 * only Node guarantees the same weights (`npm run runtimes` compares).
 */
export { gae } from './advantage/gae.ts'
export { discountedReturns } from './advantage/returns.ts'
export { vtrace } from './advantage/vtrace.ts'
export { convolutionBackwardInput, convolutionBackwardWeights, convolutionForward } from './convolution/convolution.ts'
export { denseBackwardInput, denseBackwardWeights, denseForward } from './dense/dense.ts'
export {
  categoricalBackward,
  categoricalEvaluate,
  categoricalMode,
  categoricalSample,
  maskLogits,
} from './distribution/categorical.ts'
export { drawNormal, drawUniform } from './distribution/draw.ts'
export { gaussianBackward, gaussianEvaluate, gaussianMode, gaussianSample } from './distribution/gaussian.ts'
export { a2cLoss } from './loss/a2c.ts'
export { klEstimates } from './loss/kl.ts'
export { ppoLoss } from './loss/ppo.ts'
export { adamStep, globalNorm } from './optimizer/adam.ts'
export { rmspropStep } from './optimizer/rmsprop.ts'
export { sgdStep } from './optimizer/sgd.ts'
export { clear, sumSlots } from './optimizer/slots.ts'
export { cartPoleReset, cartPoleStep } from './physics/cart-pole.ts'
export { pendulumStep } from './physics/pendulum.ts'
export { gruBackward, gruForward } from './recurrent/gru.ts'
export { lstmBackward, lstmForward } from './recurrent/lstm.ts'
export { drawByPriority, prioritiesOfErrors, setPriorities } from './replay/priorities.ts'
export { clearFlags, listPhase } from './rollout/begin.ts'
export { findByteBeyond } from './rollout/bytes.ts'
export { closeRow, completeNextValue, limitSteps, listRows, settleDead } from './rollout/close.ts'
export { accountEpisodes } from './rollout/episodes.ts'
export {
  clipRows,
  findBeyond,
  findIllegal,
  findMiswritten,
  findNonFinite,
  findOutside,
  findStuck,
  gatherRows,
  listValid,
  placeRows,
  shuffleRows,
  widenBytes,
} from './rollout/rows.ts'
export { explainedVariance, meanAndDeviation } from './statistics/moments.ts'
export { normalizeRows, updateRunning } from './statistics/running.ts'
export { matmulBf16, widenWeights } from './tensor/bf16.ts'
export { combineRows, compareRows, flagsToFloats, mapElements, selectElements } from './tensor/elements.ts'
export { matmulIntegers, quantizeInputs } from './tensor/integers.ts'
export { matmulIntegers4 } from './tensor/integers4.ts'
export {
  addDepthwise,
  addToSegments,
  copyRows,
  foldPatches,
  sumMiddle,
  transposeMatrices,
  unfoldPatches,
} from './tensor/layout.ts'
export { matmul } from './tensor/matmul.ts'
export { dequantizeRows, matmulQuantized } from './tensor/quantized.ts'
export { dequantizeRows4, matmulQuantized4 } from './tensor/quantized4.ts'
export { attentionBackward, attentionForward, attentionOfHalves } from './transformer/attention.ts'
export { placeHalves, roundToHalves } from './transformer/halves.ts'
export { layerNormBackward, layerNormForward } from './transformer/layer-norm.ts'
export { rmsNormBackward, rmsNormForward } from './transformer/norm.ts'
export { rope } from './transformer/rope.ts'
export { swigluBackward, swigluForward } from './transformer/swiglu.ts'
export {
  evaluateVocabulary,
  modeOfVocabulary,
  sampleVocabulary,
  sumVocabulary,
  vocabularyBackward,
} from './transformer/vocabulary.ts'
export * from './uncompiled.ts'
