/**
 * `colonnade/settings`: what a definition of your own declares (settings, metrics), whether the module that it lies in
 * is trusted, and commands of your own.
 *
 * @module colonnade/settings
 */

export { type Command, defineCommand, type Invocation, readKeys, splitWords } from '../cli/invocation.ts'
export type { DefinitionRecord, Factory, Part, Parts } from '../definition.ts'
export type { Metric, Metrics, Reduction } from '../metrics.ts'
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
} from '../settings.ts'
export { resolveRunKeys, runKeys, runMetrics } from '../training/run.ts'
export { type ForeignModule, type ModuleTrust, trustList, trustModule } from '../trust.ts'
