/** Which tables of docs/bench.md are older than the code that they measured. */
import ts from 'typescript'
import { git, readRecords, SOURCES, tableRooms } from './record.ts'

/** The code of a source file: its text without comments and types, which no figure depends on. */
export function codeOf(path: string, text: string): string {
  if (!path.endsWith('.ts') || path.endsWith('.simd.ts')) return text
  const { ESNext } = ts.ModuleKind
  const compilerOptions = {
    target: ts.ScriptTarget.ESNext,
    module: ESNext,
    removeComments: true,
    verbatimModuleSyntax: true,
  }
  const { outputText } = ts.transpileModule(text, { compilerOptions })
  return outputText.replace(/^export \{\};$/m, '').trim()
}

/** The folders that a room measures in which code has changed since a commit. */
function changedFolders(room: string, commit: string): string[] {
  const folders = [...(SOURCES[room] ?? []), `bench/${room}`]
  const changes = git('diff', '--no-renames', '--name-status', commit, 'HEAD', '--', ...folders).split('\n')
  const files = changes.filter(Boolean).flatMap((line) => {
    const [status, path] = line.split('\t') as [string, string]
    const before = status === 'A' ? '' : codeOf(path, git('show', `${commit}:${path}`))
    const now = status === 'D' ? '' : codeOf(path, git('show', `HEAD:${path}`))
    return before === now ? [] : [path]
  })
  return folders.filter((folder) => files.some((path) => path.startsWith(`${folder}/`)))
}

/** One line for each table that has no record, or whose code has changed since it was measured. */
export function staleRooms(records = readRecords(), changed = changedFolders, rooms = tableRooms): string[] {
  const missing = rooms.filter((room) => !records.some((record) => record.room === room))
  const stale = records.flatMap(({ room, commit }) => {
    const folders = changed(room, commit)
    return folders.length === 0 ? [] : [`${room}: measured at ${commit}; since then ${folders.join(', ')} changed`]
  })
  return [...missing.map((room) => `${room}: no record`), ...stale]
}
