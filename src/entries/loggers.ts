/**
 * `colonnade/loggers`: who is told what each update of a training did, loggers of your own, and the page that shows
 * runs.
 *
 * @module colonnade/loggers
 */

export { type Dashboard, type DashboardOptions, openDashboard } from '../dashboard/dashboard.ts'
export { csv } from '../loggers/csv.ts'
export { jsonl } from '../loggers/jsonl.ts'
export {
  type Distribution,
  defineLogger,
  type LogEntry,
  type LoggedEnd,
  type LoggedTraining,
  type Logger,
  type LoggerDefinition,
} from '../loggers/logger.ts'
export { mlflow } from '../loggers/mlflow.ts'
export { prometheus } from '../loggers/prometheus.ts'
export { tensorboard } from '../loggers/tensorboard.ts'
export { trackio } from '../loggers/trackio.ts'
