/**
 * `colonnade/settings`: declarations of your own definitions (settings, metrics), trust in modules, and your own
 * commands.
 *
 * @module colonnade/settings
 */

export type { DefinitionRecord, Factory, Part, Parts } from '../base/definition.ts'
export { type Command, defineCommand, type Invocation, readKeys, splitWords } from '../base/invocation.ts'
export type { Metric, Metrics, Reduction } from '../base/metrics.ts'
export {
  boolean,
  choice,
  integer,
  number,
  optionalNumber,
  part,
  type Setting,
  type Settings,
  type SettingValue,
  sizes,
  strings,
  text,
} from '../base/settings.ts'
export { type ForeignModule, type ModuleTrust, trustList, trustModule } from '../base/trust.ts'
export { resolveRunKeys, runKeys, runMetrics } from '../training/run/run.ts'
