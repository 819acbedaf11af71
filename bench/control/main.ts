/**
 * `npm run control`: TD3, SAC and PPO on HalfCheetah, Hopper and Walker2d, three seeds of 1M steps each, beside what rl-baselines3-zoo
 * publishes. Each training is a run folder of its own in `out`; the same command goes on where it was stopped, and `record.json` there is
 * written after each training.
 *
 *     npm run control -- [out=runs/control] [steps=1000000] [episodes=20] [seeds=1,2,3] [algorithms=td3,sac,ppo] [environments=…]
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism, cpus, loadavg } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type EpisodeRunSummary, VERSION } from '../../src/index.ts'
import { alignColumns } from '../report.ts'
import { type Cell, type Plan, planOf, settingsOf, ZOO } from './cells.ts'

const MAIN = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url))

/** What one training came to. */
interface Outcome extends Cell {
  readonly totalSteps: number
  /** Seconds that its updates and rollouts took, over all its starts. */
  readonly seconds: number
  readonly episodes: number
  /** Mean and standard deviation over fresh episodes. */
  readonly mean: number
  readonly std: number
  readonly date: string
  readonly node: string
  readonly kernels: string
  /** Load of the machine at its end. */
  readonly load: number
}

/** Runs a command of the program, and returns its JSON document. */
async function colonnade(words: readonly string[]): Promise<unknown> {
  const child = spawn(process.execPath, [MAIN, ...words, '--json'], { stdio: ['ignore', 'pipe', 'inherit'] })
  child.stdout.setEncoding('utf8')
  let said = ''
  child.stdout.on('data', (text: string) => {
    said += text
  })
  const code = await new Promise((resolve) => child.on('close', resolve))
  if (code !== 0) throw new Error(`colonnade ${words.slice(0, 2).join(' ')} ended with code ${code}`)
  return JSON.parse(said)
}

async function train(cell: Cell, { out, totalSteps, episodes }: Plan): Promise<Outcome> {
  const folder = join(out, `${cell.algorithm}-${cell.environment}-${cell.seed}`)
  const settings = Object.entries(settingsOf(cell)).map(([key, text]) => `${key}=${text}`)
  const told = [`seed=${cell.seed}`, `totalSteps=${totalSteps}`, `out=${folder}`, 'ifExists=resume', ...settings]
  const summary = (await colonnade(['train', cell.environment, ...told])) as EpisodeRunSummary
  if (summary.status !== 'complete') throw new Error(`${folder}: ${summary.status}; the same command goes on`)
  type Played = { readonly episodeReturn: { readonly mean: number; readonly std: number } }
  const { episodeReturn } = (await colonnade(['evaluate', folder, `episodes=${episodes}`])) as Played
  return {
    ...cell,
    totalSteps: summary.totalSteps,
    seconds: summary.seconds,
    episodes,
    mean: episodeReturn.mean,
    std: episodeReturn.std,
    date: new Date().toISOString(),
    node: process.version,
    kernels: summary.kernels,
    load: loadavg()[0]!,
  }
}

/** A row for each algorithm and environment: the mean of each seed, their mean, and the Zoo's. */
function table(outcomes: readonly Outcome[]): string[] {
  const pairs = new Map(outcomes.map((each) => [`${each.algorithm} ${each.environment}`, each]))
  const rows = [...pairs].map(([name, { algorithm, environment }]) => {
    const seeds = outcomes.filter((each) => each.algorithm === algorithm && each.environment === environment)
    const mean = seeds.reduce((sum, each) => sum + each.mean, 0) / seeds.length
    const steps = Math.min(...seeds.map(({ totalSteps }) => totalSteps))
    const speed = seeds.map((each) => Math.round(each.totalSteps / each.seconds)).join(', ')
    const [zoo, spread] = ZOO[algorithm][environment]
    const verdict = steps < 1_000_000 ? 'fewer steps' : mean >= zoo - spread ? 'reached' : 'MISSED'
    const each = seeds.map((seed) => seed.mean.toFixed(0)).join(', ')
    return [name, String(steps), each, mean.toFixed(0), `${zoo.toFixed(0)} ± ${spread.toFixed(0)}`, verdict, speed]
  })
  return alignColumns([['', 'steps', 'return by seed', 'mean', 'Zoo, 1M steps', '', 'steps/s'], ...rows])
}

async function control(plan: Plan): Promise<void> {
  const path = join(plan.out, 'record.json')
  mkdirSync(plan.out, { recursive: true })
  const isSame = (a: Cell, b: Cell) =>
    a.algorithm === b.algorithm && a.environment === b.environment && a.seed === b.seed
  let outcomes: readonly Outcome[] = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).outcomes : []
  for (const cell of plan.cells) {
    const former = outcomes.find((each) => isSame(each, cell))
    if (former !== undefined && former.totalSteps >= plan.totalSteps && former.episodes === plan.episodes) continue
    console.log(`${new Date().toISOString()} ${cell.algorithm} on ${cell.environment}, seed ${cell.seed}`)
    const outcome = await train(cell, plan)
    outcomes = [...outcomes.filter((each) => !isSame(each, cell)), outcome]
    const machine = { version: VERSION, cpu: cpus()[0]?.model, cores: availableParallelism() }
    writeFileSync(path, `${JSON.stringify({ ...machine, zoo: ZOO, outcomes }, null, 2)}\n`)
  }
  console.log(table(outcomes).join('\n'))
  console.log(`record: ${path}`)
}

try {
  await control(planOf(process.argv.slice(2)))
} catch (error) {
  console.error(`control: ${(error as Error).message}`)
  process.exitCode = 1
}
