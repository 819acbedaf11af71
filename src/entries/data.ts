/**
 * `colonnade/data`: columns and their arena, tables, trajectories, datasets, and the files in which they, weights and
 * policies lie.
 *
 * @module colonnade/data
 */

export { rolloutTable } from '../cohorts/rollout-table.ts'
export type { Action } from '../components/action.ts'
export { type Arena, formatBytes, takeArena } from '../components/arena.ts'
export {
  type Column,
  type ColumnSpec,
  type Columns,
  type ColumnType,
  column,
  type Plan,
  type PlannedColumn,
  saved,
} from '../components/column.ts'
export type { Episode } from '../components/episode.ts'
export type { Observation } from '../components/observation.ts'
export type { RolloutColumns } from '../components/rollout.ts'
export type { Transition } from '../components/transition.ts'
export { type Curve, type CurveLabels, type CurvePoint, drawCurves } from '../curves.ts'
export {
  type BufferState,
  createBufferFromJsonl,
  DataBuffer,
  type DealtPrompt,
  getSamples,
  loadPromptsFromJsonl,
  loadPromptsFromList,
  type PromptFileOptions,
  type SavedBufferState,
} from '../datasets/data-buffer.ts'
export { downloadDataset, type SplitOptions } from '../datasets/hub-dataset.ts'
export {
  type DatasetOptions,
  loadDatasetWithAnswers,
  loadExamples,
  loadRlPrompts,
  loadSftDataset,
  type SftExample,
} from '../datasets/load.ts'
export { type ExportOptions, exportFormats, exportPolicy } from '../export/export.ts'
export {
  readSafetensors,
  type Safetensors,
  type Tensor,
  type TensorType,
  type TensorValues,
  tensorOf,
  tensorValues,
  writeSafetensors,
} from '../safetensors.ts'
export { type CardContent, writeDatasetCard } from '../tables/dataset-card.ts'
export { type LeRobotExport, type LeRobotOptions, writeLeRobot } from '../tables/lerobot.ts'
export { type MinariExport, writeMinari } from '../tables/minari.ts'
export { type ModelCardContent, modelCard } from '../tables/model-card.ts'
export { type ParquetOptions, writeParquet } from '../tables/parquet.ts'
export { type EpisodeSpaces, readEpisodes } from '../tables/read-episodes.ts'
export { type SampleForm, sampleForms, writeSamplesAs } from '../tables/sample-forms.ts'
export type { Field } from '../tables/table.ts'
export { groupNumbers, Trajectories, type TrajectoryColumns } from '../tables/trajectories.ts'
export type { Trajectory } from '../tables/trajectory.ts'
export {
  readTrajectories,
  type TextOrigin,
  type TrajectoriesRead,
  type TrajectoryWords,
  trajectoryTable,
  writeTrajectories,
} from '../tables/trajectory-table.ts'
export type { LoadOptions } from '../training/checkpoint.ts'
export { listRollouts } from '../training/episode-run.ts'
export { type EvaluateOfflineOptions, evaluateOffline, type OfflineEvaluation } from '../training/evaluate-offline.ts'
export { type IfExists, ifExistsSetting } from '../training/if-exists.ts'
export { recordedUpdates } from '../training/recorded-run.ts'
export {
  parseSeeds,
  type RunGroupOptions,
  type RunGroupSummary,
  trainSeeds,
} from '../training/run-group.ts'
export {
  resolveSweepKeys,
  type SweepOptions,
  type SweepSetting,
  type SweepSummary,
  trainSweep,
} from '../training/sweep.ts'
export { exportTrajectories, type TrajectoryFormat, trajectoryFormats } from '../training/text/export.ts'
