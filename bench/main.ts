/**
 * `npm run bench`: the rooms startup, kernels, devices, environments, training, population and text, one process each; a table for people, then one JSON line.
 *
 *     npm run bench -- peers              one room, or several; `peers`, `widths`, `networks`, `gymnasium`, `trl` and `llama-cpp` only when named, for they install from PyPI and npm,
 *                                         `learning` and `worlds`, which train for minutes and fail where a target is missed (`worlds` writes docs/worlds.md),
 *                                         `asynchrony`, sampling while weights change, and docs/staleness.svg,
 *                                         `leaks`, 10,000 updates on a device, `agents`, a thousand at once,
 *                                         and `serving`, a model behind HTTP with 256 connections
 *     npm run bench -- baseline [rooms]   keeps the run in bench/baseline.json
 *     npm run bench -- compare [rooms]    tells what changed since
 *     npm run bench -- tables [rooms]     writes what was measured to bench/tables.md, by default of the rooms kernels, training, peers, widths and networks
 *     npm run bench -- plots              writes docs/bench-lanes.svg and docs/bench-hidden.svg
 */
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { availableParallelism, cpus, loadavg } from 'node:os'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { VERSION } from '../src/index.ts'
import { bestKernelBuild } from '../src/kernels/bind.ts'
import { type BenchReport, compareReports, keepBaseline, printChanges, readBaseline } from './baseline.ts'
import { markdownOf, missed, type RoomReport } from './report.ts'

const ROOMS = [
  'startup',
  'kernels',
  'devices',
  'environments',
  'training',
  'population',
  'impala',
  'text',
  'learning',
  'worlds',
  'text-learning',
  'asynchrony',
  'leaks',
  'agents',
  'serving',
  'peers',
  'widths',
  'networks',
  'gymnasium',
  'trl',
  'llama-cpp',
]
const DEFAULT_ROOMS = ['startup', 'kernels', 'devices', 'environments', 'training', 'population', 'text']
/** What docs/bench.md has tables of: against others, and against what C can do. */
const TABLE_ROOMS = ['kernels', 'training', 'peers', 'widths', 'networks']
const WAYS = ['baseline', 'compare', 'tables']

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

async function visitAll(rooms: readonly string[]): Promise<BenchReport> {
  const reports: RoomReport[] = []
  for (const room of rooms) reports.push(await visit(room))
  console.log()
  return {
    colonnade: VERSION,
    node: process.version,
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: availableParallelism(),
    kernels: bestKernelBuild(),
    rooms: reports,
  }
}

/** The rooms' tables as Markdown, under the machine that they are of. Returns the file's path. */
function writeTables({ node, cpu, cores, kernels, rooms }: BenchReport): string {
  const path = fileURLToPath(new URL('../../bench/tables.md', import.meta.url))
  const load = loadavg().map((value) => value.toFixed(1))
  const machine = `${new Date().toISOString().slice(0, 10)}, Node ${node}, ${kernels} kernels, ${cores} cores of ${cpu}, a load of ${load.join(', ')} over the last 1, 5 and 15 minutes.`
  writeFileSync(path, [`# What was measured\n\n${machine}\n`, ...rooms.map(markdownOf)].join('\n'))
  return path
}

async function bench(words: readonly string[]): Promise<void> {
  const unknown = words.filter((word) => ![...ROOMS, ...WAYS, 'plots'].includes(word))
  if (unknown.length > 0) {
    throw new Error(`${unknown.join(', ')}: expected ${[...ROOMS, ...WAYS, 'plots'].join(', ')}`)
  }
  if (words.includes('plots')) return await (await import('./training/plots.ts')).writePlots()
  const named = ROOMS.filter((room) => words.includes(room))
  const rooms = named.length > 0 ? named : words.includes('tables') ? TABLE_ROOMS : DEFAULT_ROOMS
  const then = words.includes('compare') ? readBaseline() : undefined
  if (words.includes('compare') && then === undefined) {
    throw new Error('no bench/baseline.json: run `npm run bench -- baseline` first')
  }
  const report = await visitAll(rooms)
  const trained = report.rooms.filter(({ room }) => room === 'learning' || room === 'worlds')
  if (trained.some(({ figures }) => missed(figures).length > 0)) process.exitCode = 1
  if (words.includes('tables')) console.log(`written to ${writeTables(report)}`)
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
