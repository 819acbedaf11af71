/**
 * `colonnade/data`: columns and their arena, tables, trajectories, datasets, and files of these, weights and policies.
 *
 * @module colonnade/data
 */

export {
  readSafetensors,
  type Safetensors,
  type Tensor,
  type TensorType,
  type TensorValues,
  tensorOf,
  tensorValues,
  writeSafetensors,
} from '../base/files/safetensors.ts'
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
export * from '../language/datasets/data-buffer.ts'
export { downloadDataset, type SplitOptions } from '../language/datasets/hub-dataset.ts'
export {
  type DatasetOptions,
  loadDatasetWithAnswers,
  loadExamples,
  loadRlPrompts,
  loadSftDataset,
  type SftExample,
} from '../language/datasets/load.ts'
export { type ExportOptions, exportFormats, exportPolicy } from '../policies/export/export.ts'
export { type CardContent, writeDatasetCard } from '../tables/dataset-card.ts'
export { type LeRobotExport, type LeRobotOptions, writeLeRobot } from '../tables/episodes/lerobot.ts'
export { type MinariExport, writeMinari } from '../tables/episodes/minari.ts'
export { type EpisodeSpaces, readEpisodes } from '../tables/episodes/read-episodes.ts'
export { type ModelCardContent, modelCard } from '../tables/model-card.ts'
export { type ParquetOptions, writeParquet } from '../tables/parquet.ts'
export type { Field } from '../tables/table.ts'
export { type SampleForm, sampleForms, writeSamplesAs } from '../tables/trajectories/sample-forms.ts'
export { groupNumbers, Trajectories, type TrajectoryColumns } from '../tables/trajectories/trajectories.ts'
export type { Trajectory } from '../tables/trajectories/trajectory.ts'
export {
  readTrajectories,
  type TextOrigin,
  type TrajectoriesRead,
  type TrajectoryWords,
  trajectoryTable,
  writeTrajectories,
} from '../tables/trajectories/trajectory-table.ts'
export { type Curve, type CurveLabels, type CurvePoint, drawCurves } from '../telemetry/curves.ts'
export * from '../training/evaluate/evaluate-offline.ts'
export type { LoadOptions } from '../training/folder/checkpoint.ts'
export { ifExistsSetting } from '../training/folder/free-folder.ts'
export type { IfExists } from '../training/folder/if-exists.ts'
export {
  parseSeeds,
  type RunGroupOptions,
  type RunGroupSummary,
  trainSeeds,
} from '../training/groups/run-group.ts'
export { type Search, searches } from '../training/groups/search.ts'
export * from '../training/groups/sweep.ts'
export { recordedUpdates } from '../training/recorded/recorded-run.ts'
export { listRollouts } from '../training/run/episode-run.ts'
export { type PackedPolicy, type PackOptions, packPolicy } from '../training/run/pack-policy.ts'
export { exportTrajectories, type TrajectoryFormat, trajectoryFormats } from '../training/text/evaluate/export.ts'
export { rolloutTable } from '../world/episodes/rollout-table.ts'
