/**
 * Kernels are bound once: one object a thread, whose members take columns. The plain bodies are the oracle, the fallback
 * and the documentation; compiled builds of the same names are bound here and nowhere else.
 */
import { InputError, show } from '../errors.ts'
import { gae } from './advantage/gae.ts'
import {
  type GroupBaseline,
  type GroupScale,
  groupAdvantage,
  type LoneAdvantage,
  Standing,
  spreadAdvantage,
} from './advantage/group.ts'
import { discountedReturns } from './advantage/returns.ts'
import { klPenalty, overlongPenalty } from './advantage/shaping.ts'
import { tokenGae, tokenRewards, whitenTokens } from './advantage/tokens.ts'
import { vtrace } from './advantage/vtrace.ts'
import { bestCompiledBuild, bindCompiled, type CompiledBuild } from './compiled.ts'
import { Activation, denseBackwardInput, denseBackwardWeights, denseForward } from './dense/dense.ts'
import {
  categoricalBackward,
  categoricalEvaluate,
  categoricalMode,
  categoricalSample,
  maskLogits,
} from './distribution/categorical.ts'
import { drawNormal, drawUniform } from './distribution/draw.ts'
import { gaussianBackward, gaussianEvaluate, gaussianMode, gaussianSample } from './distribution/gaussian.ts'
import { type Correction, correctionWeights } from './loss/correction.ts'
import { klEstimates } from './loss/kl.ts'
import {
  type KlEstimator,
  type PolicyLossInputs,
  type PolicyLossOutputs,
  type PolicyLossSettings,
  PolicySum,
  policyLoss,
  type Ratio,
  type Surrogate,
} from './loss/policy.ts'
import { PpoSum, ppoLoss } from './loss/ppo.ts'
import { crossEntropyLoss, TokenSum, valueLoss } from './loss/tokens.ts'
import { adamStep, globalNorm } from './optimizer/adam.ts'
import { rmspropStep } from './optimizer/rmsprop.ts'
import { sgdStep } from './optimizer/sgd.ts'
import { NUM_SLOTS, sumSlots } from './optimizer/slots.ts'
import { cartPoleReset, cartPoleStep } from './physics/cart-pole.ts'
import { pendulumStep } from './physics/pendulum.ts'
import { gruBackward, gruForward, gruScratch } from './recurrent/gru.ts'
import { lstmBackward, lstmForward, lstmScratch } from './recurrent/lstm.ts'
import { beginEpisodes, clearFlags, listPhase } from './rollout/begin.ts'
import {
  closeRow,
  completeNextValue,
  Listed,
  limitSteps,
  listRows,
  scatterValues,
  settleDead,
} from './rollout/close.ts'
import { accountEpisodes } from './rollout/episodes.ts'
import {
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
} from './rollout/rows.ts'
import { explainedVariance, meanAndDeviation } from './statistics/moments.ts'
import { normalizeRows, readRunning, updateRunning } from './statistics/running.ts'
import {
  Combination,
  Comparison,
  combineRows,
  compareRows,
  ElementMap,
  flagsToFloats,
  mapElements,
  selectElements,
} from './tensor/elements.ts'
import {
  addDepthwise,
  addToSegments,
  copyRows,
  DepthwiseTarget,
  foldPatches,
  sumMiddle,
  transposeMatrices,
  unfoldPatches,
} from './tensor/layout.ts'
import { MATMUL_SCRATCH, matmul } from './tensor/matmul.ts'
import { dropElements, scaleElements } from './transformer/adapter.ts'
import { attentionBackward, attentionForward } from './transformer/attention.ts'
import { rmsNormBackward, rmsNormForward } from './transformer/norm.ts'
import { dequantizeRows, quantizeRows } from './transformer/quantized.ts'
import { rope } from './transformer/rope.ts'
import { restrictVocabulary, supportVocabulary } from './transformer/support.ts'
import { swigluBackward, swigluForward } from './transformer/swiglu.ts'
import {
  evaluateVocabulary,
  modeOfVocabulary,
  sampleVocabulary,
  sumVocabulary,
  VOCABULARY_STEP,
  vocabularyBackward,
} from './transformer/vocabulary.ts'

export type {
  Correction,
  GroupBaseline,
  GroupScale,
  KlEstimator,
  LoneAdvantage,
  PolicyLossInputs,
  PolicyLossOutputs,
  PolicyLossSettings,
  Ratio,
  Surrogate,
}
export {
  Activation,
  Combination,
  Comparison,
  DepthwiseTarget,
  dequantizeRows,
  ElementMap,
  gruScratch,
  Listed,
  lstmScratch,
  MATMUL_SCRATCH,
  NUM_SLOTS,
  PolicySum,
  PpoSum,
  quantizeRows,
  Standing,
  shuffleRows,
  TokenSum,
  VOCABULARY_STEP,
}

/**
 * Advantages and losses of tokens, sequences and groups, the supports of tokens, and what adapters need
 * beside matrix products: little beside the transformer that evaluates the tokens. Their plain bodies serve in every build; they
 * take arrays in any memory.
 */
const plainKernels = {
  correctionWeights,
  crossEntropyLoss,
  dropElements,
  groupAdvantage,
  klPenalty,
  overlongPenalty,
  policyLoss,
  restrictVocabulary,
  scaleElements,
  spreadAdvantage,
  supportVocabulary,
  tokenGae,
  tokenRewards,
  valueLoss,
  whitenTokens,
}

const plain = {
  accountEpisodes,
  adamStep,
  addDepthwise,
  addToSegments,
  attentionBackward,
  attentionForward,
  beginEpisodes,
  cartPoleReset,
  cartPoleStep,
  categoricalBackward,
  categoricalEvaluate,
  categoricalMode,
  categoricalSample,
  clearFlags,
  clipRows,
  closeRow,
  combineRows,
  compareRows,
  completeNextValue,
  copyRows,
  denseBackwardInput,
  denseBackwardWeights,
  denseForward,
  dequantizeRows,
  discountedReturns,
  drawNormal,
  drawUniform,
  evaluateVocabulary,
  explainedVariance,
  findBeyond,
  findIllegal,
  findMiswritten,
  findNonFinite,
  findOutside,
  findStuck,
  flagsToFloats,
  foldPatches,
  gae,
  gatherRows,
  gaussianBackward,
  gaussianEvaluate,
  gaussianMode,
  gaussianSample,
  globalNorm,
  gruBackward,
  gruForward,
  klEstimates,
  limitSteps,
  listPhase,
  listRows,
  listValid,
  lstmBackward,
  lstmForward,
  maskLogits,
  mapElements,
  matmul,
  meanAndDeviation,
  modeOfVocabulary,
  normalizeRows,
  pendulumStep,
  placeRows,
  ppoLoss,
  readRunning,
  rmsNormBackward,
  rmsNormForward,
  rmspropStep,
  rope,
  sampleVocabulary,
  scatterValues,
  selectElements,
  settleDead,
  sgdStep,
  shuffleRows,
  sumMiddle,
  sumSlots,
  sumVocabulary,
  swigluBackward,
  swigluForward,
  transposeMatrices,
  unfoldPatches,
  updateRunning,
  vocabularyBackward,
  vtrace,
  ...plainKernels,
}

/** The kernels without SIMD bodies. */
export type PlainKernels = typeof plainKernels

/** Every kernel, by name. */
export type Kernels = typeof plain

/** Which bodies: `plain` TypeScript, WebAssembly with 128-bit SIMD, or that with fused multiply-add. */
export type KernelBuild = 'plain' | CompiledBuild

/** Binds the kernels of one build to the memory in which the columns lie: one object a thread. */
export function createKernels(memory: WebAssembly.Memory, build: KernelBuild): Kernels {
  if (build === 'plain') return plain
  const best = bestCompiledBuild()
  if (build === 'relaxed' && best === 'relaxed') return { ...bindCompiled(memory, build, plain), ...plainKernels }
  if (build === 'simd' && best !== undefined) return { ...bindCompiled(memory, build, plain), ...plainKernels }
  const valid = best === undefined ? 'plain' : best === 'simd' ? 'plain or simd' : 'plain, simd or relaxed'
  throw new InputError('kernels', show(build), `${valid} in this runtime`)
}

/** The fastest build that this runtime can run. */
export function bestKernelBuild(): KernelBuild {
  return bestCompiledBuild() ?? 'plain'
}
