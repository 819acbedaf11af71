/** Trains in a worker: one update after another. It answers the page's messages in between. */
import {
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  environmentFactory,
  exportPolicy,
  mlp,
  ppo,
  readFile,
  writeArrow,
} from 'colonnade'
import type { Ask, Format, Told } from './messages.ts'

/** Milliseconds between two copies of the weights: one frame. */
const WEIGHTS_MS = 16

/** A training with one learning rate. Another rate starts another training from its weights. */
async function open(environment: EnvironmentDefinition, seed: number, learningRate: number, former?: Float32Array) {
  const preset = environment.presets.find(({ algorithm }) => algorithm.id === 'ppo')!
  const policy = mlp(preset.policy.parameters)
  const world = await createWorld({ environment, policy, numLanes: Number(preset.run.numLanes ?? 16), seed })
  const trainer = createTrainer(world, ppo({ ...preset.algorithm.parameters, learningRate }))
  if (former !== undefined) world.cohort().weights.set(former)
  return { world, trainer, policy, environment, seed }
}

let training: Awaited<ReturnType<typeof open>> | undefined
let isPaused = true
/** Which training updates; the loop of an earlier one ends. */
let turn = 0
/** Steps and seconds with earlier learning rates. */
let before = { steps: 0, seconds: 0 }
let toldAt = 0

function tell(told: Told, moved: Transferable[] = []): void {
  postMessage(told, { transfer: moved })
}

async function run(): Promise<void> {
  const mine = ++turn
  const { trainer, world } = training!
  for await (const _ of trainer.updates({ totalSteps: 1e12 })) {
    if (mine !== turn) return
    const { episodeReturnLast100, solvedAtStep } = trainer.progress()
    const weights = performance.now() - toldAt < WEIGHTS_MS && !isPaused ? null : world.cohort().weights.slice()
    if (weights !== null) toldAt = performance.now()
    const sums = { steps: before.steps + trainer.steps, seconds: before.seconds + trainer.seconds }
    const mean = episodeReturnLast100?.mean ?? Number.NaN
    const [episodeReturn, isSolved] = [Number.isFinite(mean) ? mean : null, solvedAtStep !== null]
    tell({ told: 'update', ...sums, episodeReturn, isSolved, weights }, weights === null ? [] : [weights.buffer])
    if (isPaused) return
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
    training = await open(environmentFactory(asked.environment)(), asked.seed, asked.learningRate)
  } else if (asked.ask === 'rate') {
    if (training === undefined) return
    turn++
    const { world, trainer, environment, seed } = training
    before = { steps: before.steps + trainer.steps, seconds: before.seconds + trainer.seconds }
    training = await open(environment, seed + before.steps, asked.learningRate, world.cohort().weights.slice())
  } else if (asked.ask === 'file') return fileOf(asked.format)
  if (asked.ask === 'pause') isPaused = true
  if (asked.ask === 'go') isPaused = false
  if (!isPaused && asked.ask !== 'pause') void run().catch(tellWrong)
}

function tellWrong(error: unknown): void {
  tell({ told: 'wrong', message: error instanceof Error ? error.message : String(error) })
}

/** Messages are answered in their order. */
let last = Promise.resolve()
addEventListener('message', ({ data }: MessageEvent<Ask>) => {
  last = last.then(() => answer(data)).catch(tellWrong)
})
