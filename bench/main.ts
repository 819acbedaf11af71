/**
 * `npm run bench`: the rooms startup, kernels, devices, environments, training, population and text, one process each; a table for people, then one JSON line.
 *
 *     npm run bench -- peers              one room, or several; `peers`, `widths`, `networks`, `gymnasium`, `mujoco`, `trl` and `llama-cpp` only when named, for they install from PyPI and npm,
 *                                         `learning` and `worlds`, which train for minutes and fail where a target is missed (`worlds` writes docs/worlds.md),
 *                                         `natural`, a model that is pretrained and fine-tuned, about two hours; a second visit goes on,
 *                                         `asynchrony`, sampling while weights change, and docs/staleness.svg,
 *                                         `fleets`, what a fleet's store carries and how long weights take,
 *                                         `leaks`, 10,000 updates on a device, `agents`, a thousand at once,
 *                                         `plots`, which writes docs/bench-lanes.svg and docs/bench-hidden.svg,
 *                                         and `serving`, a model behind HTTP with 256 connections
 *     npm run bench -- baseline [rooms]   keeps the run in bench/baseline.json
 *     npm run bench -- compare [rooms]    tells what changed since
 *     npm run bench -- tables [rooms]     keeps each room's record in bench/records and writes its table into docs/bench.md; by default all rooms that have one there
 *     npm run bench -- stale              tells which tables have no record, or one older than the code it measured; exit code 1 where one is
 */
import { spawn } from 'node:child_process'
import { availableParallelism, cpus, loadavg } from 'node:os'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { VERSION } from '../src/index.ts'
import { bestKernelBuild } from '../src/kernels/bind.ts'
import { type BenchReport, compareReports, keepBaseline, printChanges, readBaseline } from './baseline.ts'
import { keepRecord, type Machine, measuredCommit, tableRooms, writeTables } from './record.ts'
import { missed, type RoomReport } from './report.ts'

const ROOMS = [
  'startup',
  'kernels',
  'devices',
  'environments',
  'training',
  'population',
  'impala',
  'fleets',
  'text',
  'learning',
  'worlds',
  'text-learning',
  'natural',
  'asynchrony',
  'leaks',
  'agents',
  'serving',
  'peers',
  'widths',
  'networks',
  'gymnasium',
  'mujoco',
  'trl',
  'llama-cpp',
  'plots',
]
const DEFAULT_ROOMS = ['startup', 'kernels', 'devices', 'environments', 'training', 'population', 'text']
const WAYS = ['baseline', 'compare', 'tables', 'stale']

/** Runs a room in its own process, so that no room finds another's compiled code or memory; shows all but its last line. */
async function visit(room: string): Promise<RoomReport> {
  console.log(`\n${room}`)
  const script = fileURLToPath(new URL(`./${room}/main.js`, import.meta.url))
  const child = spawn(process.execPath, [script], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve))
  let last: string | undefined
  for await (const line of createInterface({ input: child.stdout })) {
    if (last !== undefined) console.log(last)
    last = line
  }
  const code = await ended
  if (code !== 0 || last === undefined) throw new Error(`the room ${room} ended with code ${code}: ${last ?? ''}`)
  return JSON.parse(last) as RoomReport
}

const machine: Machine = {
  colonnade: VERSION,
  node: process.version,
  cpu: cpus()[0]?.model ?? 'unknown',
  cores: availableParallelism(),
  kernels: bestKernelBuild(),
}

const loadNow = (): number => Number(loadavg()[0]!.toFixed(2))

/** Visits the rooms in turn; with `commit`, keeps a record of each as soon as it is measured. */
async function visitAll(rooms: readonly string[], commit: string | undefined): Promise<BenchReport> {
  const reports: RoomReport[] = []
  for (const room of rooms) {
    const before = loadNow()
    const report = await visit(room)
    reports.push(report)
    if (commit === undefined) continue
    const date = new Date().toISOString().slice(0, 10)
    keepRecord(report, { ...machine, commit, date, load: [before, loadNow()] })
  }
  console.log()
  return { ...machine, rooms: reports }
}

async function bench(words: readonly string[]): Promise<void> {
  const unknown = words.filter((word) => ![...ROOMS, ...WAYS].includes(word))
  if (unknown.length > 0) {
    throw new Error(`${unknown.join(', ')}: expected ${[...ROOMS, ...WAYS].join(', ')}`)
  }
  if (words.includes('stale')) {
    const { staleRooms } = await import('./stale.ts')
    const stale = staleRooms()
    console.log(stale.length > 0 ? stale.join('\n') : 'every table has a record of the code that is here')
    process.exitCode = stale.length > 0 ? 1 : 0
    return
  }
  const named = ROOMS.filter((room) => words.includes(room))
  const rooms = named.length > 0 ? named : words.includes('tables') ? tableRooms : DEFAULT_ROOMS
  const then = words.includes('compare') ? readBaseline() : undefined
  if (words.includes('compare') && then === undefined) {
    throw new Error('no bench/baseline.json: run `npm run bench -- baseline` first')
  }
  const report = await visitAll(rooms, words.includes('tables') ? measuredCommit() : undefined)
  const trained = report.rooms.filter(({ room }) => room === 'learning' || room === 'worlds')
  if (trained.some(({ figures }) => missed(figures).length > 0)) process.exitCode = 1
  if (words.includes('tables')) console.log(`written to ${writeTables()}`)
  if (words.includes('baseline')) console.log(`kept in ${keepBaseline(report)}`)
  if (then === undefined) return console.log(JSON.stringify(report))
  const changes = compareReports(then, report)
  printChanges(changes)
  console.log(JSON.stringify({ ...report, changes }))
}

try {
  await bench(process.argv.slice(2))
} catch (error) {
  console.error(`bench: ${(error as Error).message}`)
  process.exitCode = 1
}
