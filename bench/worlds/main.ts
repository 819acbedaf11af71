/**
 * `npm run bench -- worlds`: what the presets of the suite come to, environment by environment, over three seeds; docs/worlds.md. Goes on
 * where it was stopped: what was measured with what the presets say now stands, seed by seed, in `bench/worlds/measured.jsonl`.
 * `WORLDS=Taxi-v3,Maze-v0` measures the rows of these environments, and all of them again.
 */
import { unknownWord } from '../../src/base/errors.ts'
import * as algorithms from '../../src/entries/algorithms.ts'
import { createEnvironment } from '../../src/entries/environments.ts'
import * as core from '../../src/index.ts'
import { reportRoom } from '../report.ts'
import { figuresOf, isTold, type Measured, nameOf, readRecords, recordOf, type Told, writeRecords } from './measured.ts'
import { type Row, SEEDS } from './row.ts'
import { suiteRows } from './rows.ts'

/** The settings of a policy or an algorithm that is told none. */
function defaultsOf(id: string): Readonly<Record<string, unknown>> {
  type Maker = { readonly id?: unknown; (): { readonly parameters: Readonly<Record<string, unknown>> } }
  const made = Object.values<unknown>({ ...core, ...algorithms })
  const maker = made.find((each): each is Maker => typeof each === 'function' && (each as Maker).id === id)
  if (maker === undefined) throw new Error(`${id}: expected a policy or an algorithm of the entries`)
  return maker().parameters
}

/** What a row's runs are told, and what is asked of them; and what they are told by default. */
async function toldOf(row: Row): Promise<{ now: Told; defaults: Told }> {
  const { environment, policy, algorithm, settings } = await core.configureRun(
    row.environment as core.EnvironmentId,
    row.settings,
  )
  const { numLanes, totalSteps, opponents } = settings
  return {
    now: {
      environment: environment.parameters,
      policy: policy.parameters,
      algorithm: algorithm.parameters,
      run: { numLanes, totalSteps, opponents },
      what: { ...row.figures.map(({ what }) => what) },
    },
    defaults: {
      environment: createEnvironment(row.environment).parameters,
      policy: defaultsOf(policy.id),
      algorithm: defaultsOf(algorithm.id),
    },
  }
}

const rows = await suiteRows()
const environments = rows.map(({ environment }) => environment)
const named = process.env.WORLDS?.split(',')
for (const name of named ?? []) if (!environments.includes(name)) throw unknownWord('WORLDS', name, environments)

const told = new Map<Row, Awaited<ReturnType<typeof toldOf>>>()
for (const row of rows) told.set(row, await toldOf(row))
let records: Measured[] = readRecords().filter(({ row }) => rows.some((each) => nameOf(each) === row))
for (const row of rows) {
  const name = nameOf(row)
  if (named !== undefined && !named.includes(row.environment)) continue
  const { now, defaults } = told.get(row)!
  const former = records.find((record) => record.row === name && isTold(record.told, now, defaults))
  const outcomes = named === undefined ? [...(former?.outcomes ?? [])] : []
  while (outcomes.length < SEEDS.length) {
    const seeds = row.atOnce ? SEEDS : [SEEDS[outcomes.length]!]
    console.log(`${new Date().toISOString()} ${name}, seed ${seeds.join(', ')}`)
    outcomes.push(...(await row.measure(seeds)))
    const done = SEEDS.slice(0, outcomes.length)
    records = [...records.filter((record) => record.row !== name), recordOf(row, JSON.stringify(now), done, outcomes)]
    writeRecords(rows, records)
  }
}
writeRecords(rows, records)
reportRoom(
  'worlds',
  rows.flatMap((row) => {
    const record = records.find((each) => each.row === nameOf(row))
    return record === undefined ? [] : figuresOf(row, record)
  }),
)
