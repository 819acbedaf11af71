/** Trains in a worker: one update after another. It answers the page's messages in between. */
import {
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  exportPolicy,
  ppo,
  readFile,
  writeArrow,
} from 'colonnade'
import type { Ask, Format, Told, Tuning } from './messages.ts'
import { environmentOf } from './own.ts'
import { recipeOf } from './recipe.ts'

/** The longest rest in milliseconds: a page whose worker says nothing for long would end it. */
const REST_MAX_MS = 2000
/** Milliseconds between two copies of the weights: one frame. */
const WEIGHTS_MS = 16

/** A training with one tuning, by default its recipe's. Another tuning starts another training from its weights. */
async function open(environment: EnvironmentDefinition, seed: number, given: Tuning | null, former?: Float32Array) {
  const { policy, parameters, numLanes, tuning: usual } = recipeOf(environment)
  const tuning = given ?? usual
  const world = await createWorld({ environment, policy, numLanes, seed })
  const trainer = createTrainer(world, ppo({ ...parameters, ...tuning } as Parameters<typeof ppo>[0]))
  if (former !== undefined) world.cohort().weights.set(former)
  return { world, trainer, policy, environment, seed, tuning }
}

let training: Awaited<ReturnType<typeof open>> | undefined
let isPaused = true
/** Which training updates; the loop of an earlier one ends. */
let turn = 0
/** Settles when no loop runs. */
let loop = Promise.resolve()
/** Steps and seconds with earlier tunings. */
let before = { steps: 0, seconds: 0 }
let toldAt = 0
/** The part of its time in which it trains; in the rest the page draws. */
let share = 1

function tell(told: Told, moved: Transferable[] = []): void {
  postMessage(told, { transfer: moved })
}

async function run(mine: number): Promise<void> {
  if (isPaused || mine !== turn) return
  const { trainer, world, environment } = training!
  let begunAt = performance.now()
  for await (const { entropy } of trainer.updates({ totalSteps: 1e12 })) {
    if (mine !== turn) return
    const { episodeReturnLast100, solvedAtStep } = trainer.progress()
    const weights = performance.now() - toldAt < WEIGHTS_MS && !isPaused ? null : world.cohort().weights.slice()
    if (weights !== null) toldAt = performance.now()
    const sums = { steps: before.steps + trainer.steps, seconds: before.seconds + trainer.seconds }
    const mean = episodeReturnLast100?.mean ?? Number.NaN
    const [episodeReturn, isSolved] = [Number.isFinite(mean) ? mean : null, solvedAtStep !== null]
    const { returnThreshold } = environment
    tell(
      { told: 'update', ...sums, episodeReturn, isSolved, returnThreshold, entropy: Number(entropy), weights },
      weights === null ? [] : [weights.buffer],
    )
    if (isPaused) return
    const rest = Math.min(REST_MAX_MS, (performance.now() - begunAt) * (1 / share - 1))
    if (rest > 1) await new Promise((resolve) => setTimeout(resolve, rest))
    begunAt = performance.now()
  }
}

async function fileOf(format: Format): Promise<void> {
  const { environment, policy, world, trainer } = training!
  const name = environment.id.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')
  const path = `/${name}.${{ onnx: 'onnx', module: 'mjs', arrow: 'arrow' }[format]}`
  if (format === 'arrow') await writeArrow(path, trainer.rollout.table)
  else await exportPolicy({ environment, policy, weights: world.cohort().weights.slice(), format, out: path })
  const bytes = (await readFile(path)).slice()
  tell({ told: 'file', name: path.slice(1), bytes }, [bytes.buffer])
}

async function answer(asked: Ask): Promise<void> {
  if (asked.ask === 'begin') {
    turn++
    before = { steps: 0, seconds: 0 }
    training = await open(environmentOf(asked.source), asked.seed, asked.tuning)
    tell({ told: 'begun', tuning: training.tuning })
  } else if (asked.ask === 'tune') {
    if (training === undefined) return
    turn++
    await loop
    const { world, trainer, environment, seed } = training
    before = { steps: before.steps + trainer.steps, seconds: before.seconds + trainer.seconds }
    training = await open(environment, seed + before.steps, asked.tuning, world.cohort().weights.slice())
    trainer.close()
    world.close()
  } else if (asked.ask === 'file') return fileOf(asked.format)
  if (asked.ask === 'share') {
    ;({ share } = asked)
    return
  }
  if (asked.ask === 'pause') isPaused = true
  if (asked.ask === 'go') isPaused = false
  if (isPaused || training === undefined) return
  const mine = turn
  loop = loop.then(() => run(mine)).catch(tellWrong)
}

function tellWrong(error: unknown): void {
  tell({ told: 'wrong', message: error instanceof Error ? error.message : String(error) })
}

/** Messages are answered in their order. */
let last = Promise.resolve()
addEventListener('message', ({ data }: MessageEvent<Ask>) => {
  last = last.then(() => answer(data)).catch(tellWrong)
})
