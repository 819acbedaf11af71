/** A run that was kept, and what changed since. */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Figure } from './measure.ts'
import type { Machine } from './record.ts'
import { alignColumns, type RoomReport, short } from './report.ts'

/** The whole of a run, as its JSON line has it. */
export interface BenchReport extends Machine {
  readonly rooms: readonly RoomReport[]
}

const inDist = import.meta.url.includes('/dist/bench/')
const path = fileURLToPath(new URL(inDist ? '../../bench/baseline.json' : './baseline.json', import.meta.url))

/** Keeps the run in `bench/baseline.json`; rooms that it did not visit stay as they are there. */
export function keepBaseline(report: BenchReport): string {
  const visited = new Set(report.rooms.map(({ room }) => room))
  const others = readBaseline()?.rooms.filter(({ room }) => !visited.has(room)) ?? []
  writeFileSync(path, `${JSON.stringify({ ...report, rooms: [...others, ...report.rooms] }, null, 2)}\n`)
  return path
}

/** The run that was kept; undefined if there is none. */
export function readBaseline(): BenchReport | undefined {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as BenchReport
  } catch {
    return undefined
  }
}

/** What two runs of the same code differ by beyond their spreads: other addresses, other compiled code. */
const BETWEEN_RUNS = 0.05

/** A figure then and now. `noise`: the spreads overlap, or are closer than runs of the same code may be. */
export interface Change {
  readonly room: string
  readonly name: string
  readonly unit: string
  /** Median now over median then; the spread is that of the extremes. */
  readonly ratio: number
  readonly min: number
  readonly max: number
  readonly verdict: 'better' | 'worse' | 'noise'
}

export function compareReports(then: BenchReport, now: BenchReport): Change[] {
  return now.rooms.flatMap(({ room, figures }) => {
    const before = then.rooms.find((candidate) => candidate.room === room)?.figures ?? []
    return figures.flatMap((figure) => {
      const old = before.find(({ name, unit }) => name === figure.name && unit === figure.unit)
      return old === undefined ? [] : [change(room, old, figure)]
    })
  })
}

function change(room: string, old: Figure, { name, unit, median, min, max }: Figure): Change {
  const overlaps = min <= old.max * (1 + BETWEEN_RUNS) && old.min <= max * (1 + BETWEEN_RUNS)
  const lessIsBetter = /^m?s\b/.test(unit)
  const verdict = overlaps ? 'noise' : median > old.median === lessIsBetter ? 'worse' : 'better'
  return { room, name, unit, ratio: median / old.median, min: min / old.max, max: max / old.min, verdict }
}

export function printChanges(changes: readonly Change[]): void {
  const rows = changes.map(({ room, name, unit, ratio, min, max, verdict }) => [
    room,
    name,
    unit,
    `${short(ratio)} ×`,
    `${short(min)}–${short(max)}`,
    verdict,
  ])
  for (const line of alignColumns([['', '', 'unit', 'now / then', 'min–max', 'verdict'], ...rows])) console.log(line)
}
