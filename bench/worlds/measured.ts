/** What was measured of the suite, row by row: `bench/worlds/measured.jsonl`, and the table that is made of it, docs/worlds.md. */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { cpus, loadavg } from 'node:os'
import { fileURLToPath } from 'node:url'
import { bestKernelBuild } from '../../src/kernels/bind.ts'
import { type Figure, figure } from '../measure.ts'
import { short } from '../report.ts'
import { type Outcome, type Row, type RowFigure, SEEDS } from './row.ts'

const inDist = import.meta.url.includes('/dist/bench/')
const root = fileURLToPath(new URL(inDist ? '../../../' : '../../', import.meta.url))
const RECORDS = `${root}bench/worlds/measured.jsonl`
const TABLE = `${root}docs/worlds.md`
/** The line of the table's file behind which the table stands. */
const MARK = '<!-- npm run bench -- worlds writes from here -->'

/** A row that was measured. */
export interface Measured {
  readonly row: string
  /** What its runs were told: it is measured again where that changes. */
  readonly told: string
  readonly date: string
  readonly machine: string
  readonly seeds: readonly number[]
  readonly outcomes: readonly Outcome[]
}

/** What the runs of a row are told, or what their parts are told by default: of each part its settings. */
export type Told = Readonly<Record<string, Readonly<Record<string, unknown>>>>

/** Whether runs are told now what those of a record were told. A setting that has come since is told its default. */
export function isTold(former: string, now: Told, defaults: Told): boolean {
  const then = JSON.parse(former) as Told
  const parts = new Set([...Object.keys(then), ...Object.keys(now)])
  return [...parts].every((part) => {
    const known: Readonly<Record<string, unknown>> = { ...defaults[part], ...then[part] }
    const names = new Set([...Object.keys(then[part] ?? {}), ...Object.keys(now[part] ?? {})])
    return [...names].every((name) => JSON.stringify(known[name]) === JSON.stringify(now[part]?.[name]))
  })
}

/** What a row is called: its environment, and the settings beside the preset's. */
export function nameOf({ environment, settings }: Row): string {
  return [environment, ...Object.entries(settings).map(([key, value]) => `${key}=${value}`)].join(' ')
}

/** The record of trainings that have just ended. */
export function recordOf(row: Row, told: string, seeds: readonly number[], outcomes: readonly Outcome[]): Measured {
  const load = loadavg()[1]!.toFixed(1)
  return {
    row: nameOf(row),
    told,
    date: new Date().toISOString().slice(0, 10),
    machine: `${cpus()[0]?.model ?? 'unknown'}, ${bestKernelBuild()} kernels, Node ${process.version}, load ${load}`,
    seeds,
    outcomes,
  }
}

/** All rows that were measured. */
export function readRecords(): Measured[] {
  if (!existsSync(RECORDS)) return []
  const lines = readFileSync(RECORDS, 'utf8').split('\n').filter(Boolean)
  return lines.map((line) => JSON.parse(line) as Measured)
}

/** Keeps these rows, and makes the table of them. */
export function writeRecords(rows: readonly Row[], records: readonly Measured[]): void {
  const order = rows.map(nameOf)
  const sorted = records.toSorted((a, b) => order.indexOf(a.row) - order.indexOf(b.row))
  writeWhole(RECORDS, `${sorted.map((record) => JSON.stringify(record)).join('\n')}\n`)
  const [before] = readFileSync(TABLE, 'utf8').split(MARK)
  writeWhole(TABLE, `${before}${MARK}\n\n${tableOf(rows, records)}`)
}

function writeWhole(path: string, text: string): void {
  writeFileSync(`${path}.part`, text)
  renameSync(`${path}.part`, path)
}

/** A row's figures, for the report. */
export function figuresOf(row: Row, { seeds, outcomes }: Measured): Figure[] {
  const { algorithm, policy, steps } = outcomes[0]!
  const name = `${nameOf(row)} by ${algorithm} and ${policy}, ${steps.toLocaleString('en')} steps, seeds ${seeds.join(', ')}`
  return [
    ...row.figures.map(({ what, wanted }, i) => figure(`${name}, ${what}`, '', valuesOf(outcomes, i), wanted)),
    figure(
      `${name}, training`,
      's',
      outcomes.map(({ seconds }) => seconds),
    ),
  ]
}

function valuesOf(outcomes: readonly Outcome[], i: number): number[] {
  return outcomes.map(({ values }) => values[i]!)
}

/** The table as Markdown: rows that were measured, in the order of `rows`. */
export function tableOf(rows: readonly Row[], records: readonly Measured[]): string {
  const lines = rows.flatMap((row) => {
    const record = records.find((each) => each.row === nameOf(row))
    return record === undefined ? [] : row.figures.map((asked, i) => lineOf(row, record, asked, i))
  })
  const machines = [...new Set(records.map(({ machine }) => machine.replace(/, load .*/, '')))]
  const header = [
    'environment',
    'by',
    'steps',
    'what',
    'asked for',
    'mean ± deviation',
    'by seed',
    'seeds that reach it',
  ]
  const columns = [...header, 'published', 's a training', 'measured']
  return [
    `Machine: ${machines.join('; ')}.`,
    '',
    `| ${columns.join(' | ')} |`,
    `|${columns.map(() => '---|').join('')}`,
    ...lines,
    '',
  ].join('\n')
}

function lineOf(row: Row, { outcomes, date }: Measured, asked: RowFigure, i: number): string {
  const { algorithm, policy, steps } = outcomes[0]!
  const values = valuesOf(outcomes, i)
  const mean = values.reduce((sum, value) => sum + value) / values.length
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length)
  const { atLeast = -Infinity, atMost = Infinity } = asked.wanted
  const reached = values.filter((value) => value >= atLeast && value <= atMost).length
  const soFar = values.length < SEEDS.length ? ' so far' : ''
  const seconds = outcomes.map((outcome) => outcome.seconds)
  const others = Object.entries(row.settings).filter(([key]) => key.startsWith('environment.'))
  return `| ${[
    [row.environment, ...others.map(([key, value]) => `${key.replace('environment.', '')}=${value}`)].join(', '),
    `${algorithm}, ${policy}`,
    steps.toLocaleString('en'),
    asked.what,
    asked.wanted.atLeast === undefined ? `≤ ${minus(atMost)}` : `≥ ${minus(atLeast)}`,
    `${minus(mean)} ± ${short(deviation)}`,
    values.map(minus).join(', '),
    `${reached === values.length ? `all ${values.length}` : `**${reached} of ${values.length}**`}${soFar}`,
    asked.published,
    `${short(Math.min(...seconds))}–${short(Math.max(...seconds))}`,
    date,
  ].join(' | ')} |`
}

/** Four digits, with the sign that texts have. */
function minus(value: number): string {
  return String(Number(value.toPrecision(4))).replace('-', '−')
}
