/**
 * The public names of `colonnade` in a page (and in other runtimes that are not Node): worlds, environments, policies, algorithms, systems,
 * trainers and tables, without commands.
 *
 * @module colonnade
 */
export {
  forgetFolder,
  keepFolder,
  keptFolders,
  loadFolder,
  readFile,
  writeFile,
} from './base/files/kept.page.ts'
export { listFiles, unzipFolder, zipFolder } from './base/files/zip.ts'
export * from './index.core.ts'
export { type ExportOptions, exportFormats, exportPolicy } from './policies/export/export.ts'
export type { ResumeOptions } from './training/folder/run-folder.ts'
export type { EpisodeRunDefinition, RunDefinition } from './training/run/definition.ts'
export type { RunListeners } from './training/run/kind.ts'
export { configureRun, openRun, type Run, type RunSummary, resumeRun, startRun } from './training/run/run.ts'
export { doctor, type PageCheck, type PageReport } from './training/threads/doctor.page.ts'
