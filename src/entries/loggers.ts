/**
 * `colonnade/loggers`: loggers of updates, your own loggers, and the dashboard of runs.
 *
 * @module colonnade/loggers
 */

export { type Dashboard, type DashboardOptions, openDashboard } from '../telemetry/dashboard/dashboard.ts'
export {
  defineRunCheck,
  type Evidence,
  type RunCheck,
  type RunFinding,
  type SettingChange,
} from '../telemetry/diagnose/check.ts'
export type { Diagnosis } from '../telemetry/diagnose/diagnose.ts'
export type { KnownSetting, Progress, RecordedRun, Stretch } from '../telemetry/diagnose/recorded.ts'
export { csv } from '../telemetry/loggers/csv.ts'
export { jsonl } from '../telemetry/loggers/jsonl.ts'
export {
  type Distribution,
  defineLogger,
  type LogEntry,
  type LoggedEnd,
  type LoggedTraining,
  type Logger,
  type LoggerDefinition,
} from '../telemetry/loggers/logger.ts'
export { mlflow } from '../telemetry/loggers/mlflow.ts'
export { prometheus } from '../telemetry/loggers/prometheus.ts'
export { tensorboard } from '../telemetry/loggers/tensorboard.ts'
export { trackio } from '../telemetry/loggers/trackio.ts'
export { diagnose } from '../training/evaluate/diagnose.ts'
export { type Callbacks, defineCallbacks, joinListeners } from '../training/run/callbacks.ts'
