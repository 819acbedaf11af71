/**
 * `colonnade/text`: language models, their tokenizers, chat templates and adapters; generating and validating; the
 * types of runs and environments of text.
 *
 * @module colonnade/text
 */

export type { RlDefinition } from '../algorithms/tokens/rl.ts'
export type { SftDefinition } from '../algorithms/tokens/sft.ts'
export { type McpClient, type McpServer, type McpTools, mcpTools } from '../environments/bridges/mcp.ts'
export * from '../environments/bridges/open-env.ts'
export type { Example, Message, PastTurn, RewardReduction } from '../environments/text.ts'
export * from '../environments/tools/agent.ts'
export * from '../environments/tools/tool.ts'
export type { ToolArguments, ToolCall } from '../environments/tools/tool-calls.ts'
export { type ToolFormat, templateFormat } from '../environments/tools/tool-format.ts'
export { type ToolUse, type ToolUsed, useTools } from '../environments/tools/use-tools.ts'
export type { HeldOut } from '../language/held-out.ts'
export { type DownloadProgress, downloadModel, type HubOptions } from '../language/hub.ts'
export * from '../language/hub-upload.ts'
export type { LanguageModelDefinition } from '../language/language-model.ts'
export { type LanguageModel, loadLanguageModel } from '../language/load-language-model.ts'
export type { ChatTemplate, RenderOptions } from '../language/templates/chat-template.ts'
export { type ByteTokenizer, byteTokenizer } from '../language/tokenizers/byte-tokenizer.ts'
export { checkTokenizer } from '../language/tokenizers/check-tokenizer.ts'
export { loadTokenizer } from '../language/tokenizers/load-tokenizer.ts'
export { StopStrings } from '../language/tokenizers/stop-strings.ts'
export {
  type DecodeOptions,
  type EncodeOptions,
  saveTokenizer,
  type Tokenizer,
} from '../language/tokenizers/tokenizer.ts'
export {
  type NextTurn,
  nextTurn,
  promptIds,
  renderIds,
  type TrainingExample,
  trainingRows,
  turnIds,
} from '../language/tokenizers/turn-ids.ts'
export type { TransformerConfig, TransformerShape } from '../language/transformer/config.ts'
export { loadTransformer, saveTransformer } from '../language/transformer/folder.ts'
export { type LoraModel, type LoraSettings, lora, mergeLora, unmergeLora } from '../language/transformer/lora.ts'
export { loadLora, saveLora } from '../language/transformer/lora-folder.ts'
export { type TransformerModel, transformer } from '../language/transformer/model.ts'
export { type BaseWeights, type QuantizedColumns, wholeWeights } from '../language/transformer/quantized.ts'
export { checkSampling, type Sampling } from '../language/transformer/sampling.ts'
export { loadTrainedModel } from '../training/backends/trained-model.ts'
export { transformerLogprobs, type ValidatedTransformer } from '../training/backends/transformer-logprobs.ts'
export type { ConversationProgress } from '../training/loop/conversations.ts'
export {
  type ConversationRunSummary,
  findTextEnvironment,
  type TextEnvironmentId,
} from '../training/run/conversation-run.ts'
export type { ConversationRunDefinition } from '../training/run/definition.ts'
export { type Generated, type GenerateOptions, generateTokens } from '../training/text/collect/generate.ts'
export { measureEngineSpeed, type SpeedOptions } from '../training/text/evaluate/engine-speed.ts'
export { exportTrainedModel } from '../training/text/evaluate/export.ts'
export { type HeldOutResult, heldOutOf } from '../training/text/evaluate/judged-run.ts'
export * from '../training/text/evaluate/logprob-validator.ts'
export { type MeasuredRun, measureRun } from '../training/text/evaluate/measured-run.ts'
export type { RlMetrics, TextMetrics } from '../training/text/evaluate/metrics.ts'
export type { TextRunPlan } from '../training/text/learn/plan.ts'
export { type ConversationCohortOptions, loadAdapter } from '../world/conversations/cohort.ts'
