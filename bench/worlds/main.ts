/**
 * `npm run bench -- worlds`: what the presets of the suite come to, environment by environment, over three seeds; docs/worlds.md. Goes on
 * where it was stopped: what was measured with what the presets say now stands, seed by seed, in `bench/worlds/measured.jsonl`.
 * `WORLDS=Taxi-v3,Maze-v0` measures the rows of these environments, and all of them again.
 */
import { algorithmFactory } from '../../src/algorithms/registry.ts'
import { createEnvironment } from '../../src/entries/environments.ts'
import { unknownWord } from '../../src/errors.ts'
import { configureRun, type EnvironmentId } from '../../src/index.ts'
import { policyFactory } from '../../src/policies/registry.ts'
import { reportRoom } from '../report.ts'
import { figuresOf, isTold, type Measured, nameOf, readRecords, recordOf, type Told, writeRecords } from './measured.ts'
import { type Row, SEEDS } from './row.ts'
import { suiteRows } from './rows.ts'

/** What a row's runs are told, and what is asked of them; and what they are told by default. */
async function toldOf(row: Row): Promise<{ now: Told; defaults: Told }> {
  const { environment, policy, algorithm, settings } = await configureRun(
    row.environment as EnvironmentId,
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
      policy: policyFactory(policy.id)().parameters,
      algorithm: algorithmFactory(algorithm.id)().parameters,
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
