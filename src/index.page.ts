/**
 * The public names of `colonnade` in a page (and in other runtimes that are not Node): worlds, environments, policies, algorithms, systems,
 * trainers and tables, without files, threads and commands.
 *
 * @module colonnade
 */
export { listFiles, readFile, writeFile } from './base/files/kept.page.ts'
export * from './index.core.ts'
export { type ExportOptions, exportFormats, exportPolicy } from './policies/export/export.ts'
