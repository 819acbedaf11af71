/** The kernels without a compiled twin, by name: every build has these bodies. A page has no others (`bodies.page.ts`). */
export { groupAdvantage, spreadAdvantage } from './advantage/group.ts'
export { importanceWeights, weighAdvantages } from './advantage/importance.ts'
export { klPenalty, overlongPenalty } from './advantage/shaping.ts'
export { tokenGae, tokenRewards, whitenTokens } from './advantage/tokens.ts'
export { correctionWeights } from './loss/correction.ts'
export { policyLoss } from './loss/policy.ts'
export { tdLoss } from './loss/td.ts'
export { crossEntropyLoss, valueLoss } from './loss/tokens.ts'
export { relabelGoals } from './replay/goals.ts'
export { gatherNext, listReplayable, multiStepReturns } from './replay/returns.ts'
export { beginEpisodes } from './rollout/begin.ts'
export { scatterValues } from './rollout/close.ts'
export { readRunning } from './statistics/running.ts'
export { gatherBf16 } from './tensor/bf16.ts'
export { gatherQuantized } from './tensor/quantized.ts'
export { gatherQuantized4 } from './tensor/quantized4.ts'
export { activationBackward, activationForward, capBackward, capElements } from './transformer/activation.ts'
export { dropElements, scaleElements } from './transformer/adapter.ts'
export { cappedBackward, cappedForward, cappedOfHalves } from './transformer/attention.ts'
export { maskVocabulary, restrictVocabulary, selectCandidates } from './transformer/candidates.ts'
export { changeVocabulary } from './transformer/changes.ts'
export {
  addLoad,
  addShares,
  addSharesBackward,
  chooseExperts,
  chooseExpertsBackward,
  listByExpert,
  sigmoidBackward,
  sigmoidForward,
} from './transformer/experts.ts'
export { ropePart } from './transformer/rope.ts'
export { chooseByValue, chosenBackward, duelingForward, evaluateByValue, valueOfBest } from './values/actions.ts'
export { addActionNoise, noisyEvaluate, spreadActions, tanhBackward } from './values/deterministic.ts'
export {
  drawReplayNormal,
  drawReplayUniform,
  joinActions,
  shrinkActions,
  squashedBackward,
  squashedEvaluate,
  squashedSample,
  stretchActions,
} from './values/squashed.ts'
