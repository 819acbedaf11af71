/**
 * The public names of text in a page: tasks, small transformers, and what trains and evaluates them. In Node, `colonnade` exports these
 * names. In a page they are a separate entry, since some bundlers would include all of this code in a page that has no text.
 *
 * @module colonnade/text
 */
export { rl } from '../algorithms/tokens/rl.ts'
export { sft } from '../algorithms/tokens/sft.ts'
export { textEnvironmentFactory, textEnvironments } from '../environments/tasks/registry.ts'
export { defineTextEnvironment, type Reply, type TextEnvironmentDefinition, type Turn } from '../environments/text.ts'
export { languageModel } from '../language/language-model.ts'
export { evaluateText, type TextEvaluateOptions, type TextEvaluation } from '../training/text/evaluate/evaluate.ts'
export type { ConversationCohort } from '../world/conversations/cohort.ts'
