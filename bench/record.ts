/**
 * What a room measured, kept in `bench/records/<room>.json` with its commit, date and load. `docs/bench.md` has a table of each record
 * between two marks, written here and never by hand; `stale.ts` tells which records are older than the code that they measured.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { markdownOf, type RoomReport } from './report.ts'

/** The machine and the build that a bench ran on. */
export interface Machine {
  readonly colonnade: string
  readonly node: string
  readonly cpu: string
  readonly cores: number
  readonly kernels: string
}

/** A room's report, and when and on what it was measured. */
export interface RoomRecord extends Machine, RoomReport {
  readonly commit: string
  readonly date: string
  /** The machine's load over the last minute, before the room was visited and after. */
  readonly load: readonly [before: number, after: number]
}

/** The folders whose code decides a room's figures; each room has its own folder besides. */
const TRAINS = ['src/kernels', 'src/systems', 'src/world', 'src/policies', 'src/algorithms', 'src/training']
export const SOURCES: Readonly<Record<string, readonly string[]>> = {
  kernels: ['src/kernels'],
  widths: ['src/kernels', 'src/policies'],
  devices: ['src/policies/devices', 'src/kernels'],
  environments: ['src/environments', 'src/systems', 'src/kernels'],
  training: TRAINS,
  plots: TRAINS,
  peers: [...TRAINS, 'src/environments'],
  networks: [...TRAINS, 'src/environments'],
  mujoco: ['src/environments/mujoco', 'src/systems'],
  trl: [...TRAINS, 'src/language'],
  'llama-cpp': ['src/kernels', 'src/language/transformer'],
  fleets: ['src/fleet/store', 'src/base/http'],
  agents: ['src/world', 'src/systems', 'src/engines', 'src/environments'],
}

const inDist = import.meta.url.includes('/dist/bench/')
const root = fileURLToPath(new URL(inDist ? '../../' : '../', import.meta.url))
const recordsFolder = join(root, 'bench', 'records')
const docsPath = join(root, 'docs', 'bench.md')

/** The rooms that docs/bench.md has tables of, in its order. */
export const tableRooms: readonly string[] = [
  ...['kernels', 'environments', 'training', 'peers', 'widths', 'networks', 'mujoco', 'trl', 'llama-cpp'],
  ...['devices', 'agents', 'fleets', 'plots'],
]

/** What git prints. */
export const git = (...words: string[]): string =>
  execFileSync('git', ['-C', root, ...words], { encoding: 'utf8' }).trim()

/** The commit that is measured. Throws where sources differ from it: a record of them could not be made again. */
export function measuredCommit(): string {
  const changed = git('status', '--porcelain', '--', 'src', 'bench', ':!bench/records')
  if (changed !== '') throw new Error(`tables are measured at a commit: commit these first:\n${changed}`)
  return git('rev-parse', '--short=10', 'HEAD')
}

/** Writes a room's record. */
export function keepRecord(report: RoomReport, rest: Omit<RoomRecord, keyof RoomReport>): void {
  const record: RoomRecord = { ...rest, ...report }
  mkdirSync(recordsFolder, { recursive: true })
  writeFileSync(join(recordsFolder, `${report.room}.json`), `${JSON.stringify(record, null, 1)}\n`)
}

/** All records. */
export function readRecords(): RoomRecord[] {
  if (!existsSync(recordsFolder)) return []
  const files = readdirSync(recordsFolder).filter((file) => file.endsWith('.json'))
  return files.map((file) => JSON.parse(readFileSync(join(recordsFolder, file), 'utf8')) as RoomRecord)
}

/** Rows from which on a table is folded. */
const LONG = 60

function sectionOf(record: RoomRecord): string {
  const { commit, date, node, kernels, cores, cpu, load, figures, room } = record
  const [before, after] = load
  const machine = `\`npm run bench -- tables ${room}\`, ${date}, commit ${commit}, Node ${node}, ${kernels} kernels, ${cores} cores of ${cpu}; load ${before} before, ${after} after (record: \`bench/records/${room}.json\`).`
  const table = markdownOf(record).trim()
  const isLong = figures.length > LONG
  return `${machine}\n\n${isLong ? `<details><summary>${figures.length} rows</summary>\n\n${table}\n\n</details>` : table}`
}

const marksOf = (room: string) => [`<!-- record ${room} -->`, `<!-- end ${room} -->`] as const

/** `markdown` with the section of each record between its marks. Throws where a record's marks are not there. */
export function withRecords(markdown: string, records: readonly RoomRecord[]): string {
  let text = markdown
  for (const record of records) {
    const [begin, end] = marksOf(record.room)
    const [from, to] = [text.indexOf(begin), text.indexOf(end)]
    if (from < 0 || to < from) throw new Error(`docs/bench.md: expected ${begin} and then ${end}`)
    text = `${text.slice(0, from + begin.length)}\n${sectionOf(record)}\n${text.slice(to)}`
  }
  return text
}

/** Writes the tables of all records into docs/bench.md. Returns its path. */
export function writeTables(): string {
  writeFileSync(docsPath, withRecords(readFileSync(docsPath, 'utf8'), readRecords()))
  return docsPath
}
