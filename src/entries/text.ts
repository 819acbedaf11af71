/**
 * `colonnade/text`: language models, their tokenizers, chat templates and adapters; generating and validating; the
 * types of runs and environments of text.
 *
 * @module colonnade/text
 */

export type { RlDefinition } from '../algorithms/rl.ts'
export type { SftDefinition } from '../algorithms/sft.ts'
export { type ConversationCohortOptions, loadAdapter } from '../cohorts/conversations.ts'
export {
  type AgentContext,
  type AgentModel,
  type AgentResult,
  defineAgent,
  type ModelAnswer,
  type ModelCall,
} from '../environments/agent.ts'
export { type McpClient, type McpServer, type McpTools, mcpTools } from '../environments/mcp.ts'
export {
  type OpenEnvEnvironment,
  type OpenEnvObservation,
  type OpenEnvOptions,
  openEnv,
} from '../environments/open-env.ts'
export type { Example, Message, PastTurn, RewardReduction } from '../environments/text.ts'
export {
  callTool,
  defineTool,
  type Tool,
  type ToolResult,
  type ToolSchema,
  toolSchemas,
} from '../environments/tool.ts'
export type { ToolArguments, ToolCall } from '../environments/tool-calls.ts'
export { type ToolFormat, templateFormat } from '../environments/tool-format.ts'
export { type ToolUse, type ToolUsed, useTools } from '../environments/use-tools.ts'
export type { TransformerConfig, TransformerShape } from '../policies/transformer/config.ts'
export { loadTransformer, saveTransformer } from '../policies/transformer/folder.ts'
export { type LoraModel, type LoraSettings, lora, mergeLora, unmergeLora } from '../policies/transformer/lora.ts'
export { loadLora, saveLora } from '../policies/transformer/lora-folder.ts'
export { type TransformerModel, transformer } from '../policies/transformer/model.ts'
export { type BaseWeights, type QuantizedColumns, wholeWeights } from '../policies/transformer/quantized.ts'
export { checkSampling, type Sampling } from '../policies/transformer/sampling.ts'
export { type ByteTokenizer, byteTokenizer } from '../text/byte-tokenizer.ts'
export type { ChatTemplate, RenderOptions } from '../text/chat-template.ts'
export { checkTokenizer } from '../text/check-tokenizer.ts'
export type { HeldOut } from '../text/held-out.ts'
export { type DownloadProgress, downloadModel, type HubOptions } from '../text/hub.ts'
export {
  checkUpload,
  type Uploaded,
  type UploadOptions,
  type UploadProgress,
  uploadModel,
} from '../text/hub-upload.ts'
export type { LanguageModelDefinition } from '../text/language-model.ts'
export { type LanguageModel, loadLanguageModel } from '../text/load-language-model.ts'
export { loadTokenizer } from '../text/load-tokenizer.ts'
export { StopStrings } from '../text/stop-strings.ts'
export { type DecodeOptions, type EncodeOptions, saveTokenizer, type Tokenizer } from '../text/tokenizer.ts'
export {
  type NextTurn,
  nextTurn,
  promptIds,
  renderIds,
  type TrainingExample,
  trainingRows,
  turnIds,
} from '../text/turn-ids.ts'
export {
  type ConversationRunSummary,
  findTextEnvironment,
  type TextEnvironmentId,
} from '../training/conversation-run.ts'
export type { ConversationProgress } from '../training/conversations.ts'
export type { ConversationRunDefinition } from '../training/run-definition.ts'
export { exportTrainedModel } from '../training/text/export.ts'
export { type Generated, type GenerateOptions, generateTokens } from '../training/text/generate.ts'
export { type HeldOutResult, heldOutOf } from '../training/text/judged-run.ts'
export {
  type LogprobCheck,
  type LogprobModel,
  type LogprobReport,
  type LogprobTolerances,
  LogprobValidator,
  logprobChecks,
  validateLogprobImplementation,
} from '../training/text/logprob-validator.ts'
export { type MeasuredRun, measureRun } from '../training/text/measured-run.ts'
export type { RlMetrics, TextMetrics } from '../training/text/metrics.ts'
export type { TextRunPlan } from '../training/text/plan.ts'
export { loadTrainedModel } from '../training/text/trained-model.ts'
export { transformerLogprobs, type ValidatedTransformer } from '../training/text/transformer-logprobs.ts'
