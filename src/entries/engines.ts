/**
 * `colonnade/engines`: the contract of engines, which choose the tokens of conversations, with a scripted one; a server
 * of language models, and a gateway for agents.
 *
 * @module colonnade/engines
 */

export type { AgentCounts, AgentRun, AgentSays, RunAgentsOptions } from '../agents/gateway/agent-runner.ts'
export * from '../agents/gateway/gateway.ts'
export type { EndedSession, SessionLimits, SessionPlace, SessionReward } from '../agents/gateway/sessions.ts'
export { type FaultKind, type FaultOptions, type FaultRecord, faultKinds } from '../agents/serving/faults.ts'
export type { ServedModelOptions } from '../agents/serving/served-model.ts'
export { type ModelServer, type ServeOptions, serveModel } from '../agents/serving/server.ts'
export { serveTinker, type TinkerServeOptions, type TinkerServer } from '../agents/tinker/tinker-server.ts'
export { defineEngine, type EngineParts, type OpenTurn } from '../engines/define-engine.ts'
export { defineEngineFactory } from '../engines/define-engine-factory.ts'
export {
  type DecodingWorkers,
  type Engine,
  type EngineContext,
  type EngineDefinition,
  type EngineThreads,
  type GeneratedTokens,
  type LogprobKind,
  logprobKinds,
  type Polled,
  type TurnEnd,
  type TurnRequest,
  type WeightsDelivery,
} from '../engines/engine.ts'
export type { EngineShape } from '../engines/engine-shape.ts'
export { findEngine } from '../engines/find-engine.ts'
export { type PoolOptions, poolEngine } from '../engines/pool.ts'
export { type ScriptStep, scriptedEngine } from '../engines/scripted.ts'
export { type LlamaCppOptions, llamaCppEngine } from '../engines/servers/llama-cpp.ts'
export { openaiEngine } from '../engines/servers/openai.ts'
export { type SglangOptions, sglangEngine } from '../engines/servers/sglang.ts'
export { type VllmOptions, vllmEngine } from '../engines/servers/vllm.ts'
export { type TinkerEngineOptions, tinkerEngine } from '../engines/tinker/tinker.ts'
export { type Agents, runAgents } from '../training/text/collect/run-agents.ts'
