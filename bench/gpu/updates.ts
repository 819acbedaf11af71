/** Updates of PPO on the device beside the same on all threads of the processor; and trainings on the device. */
import { availableParallelism } from 'node:os'
import { breakout, cartPole, convolutional, createTrainer, createWorld, mlp, pendulum, ppo } from '../../src/index.ts'
import type { Gpu } from '../../src/kernels/webgpu/gpu.ts'

type Device = 'none' | 'webgpu'

interface Task {
  readonly name: string
  readonly environment: ReturnType<typeof cartPole>
  policy(device: Device): ReturnType<typeof mlp> | ReturnType<typeof convolutional>
}

/** The largest differences between the two after an update that starts from the same weights. */
export async function checkUpdates(): Promise<object[]> {
  const tasks: Task[] = [
    { name: 'CartPole, mlp 32-32', environment: cartPole(), policy: (device) => mlp({ hidden: [32, 32], device }) },
    {
      name: 'CartPole, mlp 48 shared',
      environment: cartPole(),
      policy: (device) => mlp({ hidden: [48, 48], sharedTrunk: true, activation: 'relu', device }),
    },
    {
      name: 'Pendulum, mlp 70 normalized',
      environment: pendulum(),
      policy: (device) => mlp({ hidden: [70], normalizeObservations: true, device }),
    },
    {
      name: 'Breakout-MinAtar, convolutional 16 and 32',
      environment: breakout() as ReturnType<typeof cartPole>,
      policy: (device) => convolutional({ device }),
    },
  ]
  const rows: object[] = []
  for (const task of tasks) {
    const learned = async (device: Device) => {
      const world = await createWorld({
        environment: task.environment,
        policy: task.policy(device),
        numLanes: 32,
        seed: 1,
      })
      const trainer = createTrainer(world, ppo({ numSteps: 32, entropyCoef: 0.01, clipValue: 0.2 }))
      const metrics = []
      for await (const each of trainer.updates({ totalSteps: 2048 })) metrics.push(each)
      const weights = world.cohorts[0]!.weights.slice()
      trainer.close()
      world.close()
      return { weights, metrics }
    }
    const [cpu, gpu] = [await learned('none'), await learned('webgpu')]
    const weights = cpu.weights.reduce((most, value, i) => Math.max(most, Math.abs(value - gpu.weights[i]!)), 0)
    const norms = cpu.metrics.map((each, i) => Math.abs(each.gradNorm / gpu.metrics[i]!.gradNorm - 1))
    // Two updates of 16 steps of Adam with learning rates of 2.5e-4 and 1.25e-4.
    rows.push({
      task: task.name,
      weights,
      gradNorm: Math.max(...norms),
      isRight: weights < 1e-4 && Math.max(...norms) < 1e-4,
    })
  }
  return rows
}

/** The processor is asked for one update where it is as slow as this, and for none where a row would take this long. */
const [SLOW_SECONDS, TOO_LONG_SECONDS] = [2, 30]

/** Networks with the numbers of rows of their rollouts. */
const CELLS = {
  full: [
    { name: 'convolutional 16', lengths: [4096, 16_384, 65_536] },
    { name: 'mlp 1024-1024', lengths: [4096, 16_384] },
    { name: 'mlp 512-512', lengths: [1024, 4096, 16_384, 65_536] },
    { name: 'mlp 64-64', lengths: [1024, 4096, 16_384, 65_536] },
  ],
  small: [
    { name: 'mlp 16-16', lengths: [256] },
    { name: 'convolutional 2', lengths: [128] },
  ],
} as const

/** Rows/s of updates: each row is learned from in each of 4 passes. The device goes first, so that it is measured in any case. */
export async function timeUpdates(gpu: Gpu, size: 'full' | 'small', keep: (rows: object[]) => void): Promise<void> {
  const threads = availableParallelism()
  const table: object[] = []
  for (const { name, lengths } of CELLS[size]) {
    let cpuPerRow = 0
    for (const numRows of lengths) {
      const before = gpu.transfers
      const device = await secondsOfUpdate(name, numRows, 'webgpu', threads, UPDATES)
      const after = gpu.transfers
      const expected = cpuPerRow * numRows
      const repeats = expected > SLOW_SECONDS ? 1 : UPDATES
      const cpu = expected > TOO_LONG_SECONDS ? null : await secondsOfUpdate(name, numRows, 'none', threads, repeats)
      if (cpu !== null) cpuPerRow = cpu / numRows
      table.push({
        ...{ policy: name, rows: numRows, threads },
        cpuRowsPerSecond: cpu && numRows / cpu,
        cpuUpdates: cpu === null ? 0 : Math.max(1, repeats - 1),
        gpuRowsPerSecond: numRows / device,
        ratio: cpu && cpu / device,
        sentMegabytes: (after.sentBytes - before.sentBytes) / 1e6 / UPDATES,
        readMegabytes: (after.readBytes - before.readBytes) / 1e6 / UPDATES,
      })
      keep(table)
    }
  }
}

const UPDATES = 4

/** A policy of our bench by its name, with the environment that it acts in. */
function taskOf(name: string): Task {
  const [kind, sizes] = name.split(' ') as [string, string]
  const numbers = sizes.split('-').map(Number)
  if (kind === 'mlp') return { name, environment: cartPole(), policy: (on) => mlp({ hidden: numbers, device: on }) }
  const policy = (on: Device) => convolutional({ filters: numbers, hidden: [128], device: on })
  return { name, environment: breakout() as ReturnType<typeof cartPole>, policy }
}

/** Median seconds of an update, without its rollout; the first update, in which shaders are compiled, does not count if there are more. */
async function secondsOfUpdate(
  name: string,
  numRows: number,
  device: Device,
  threads: number,
  updates: number,
): Promise<number> {
  const numLanes = Math.min(1024, numRows / 8)
  const { environment, policy } = taskOf(name)
  const world = await createWorld({ environment, policy: policy(device), numLanes, seed: 1 })
  const algorithm = ppo({ numSteps: numRows / numLanes, numMinibatches: 4, updateEpochs: 4 })
  const trainer = createTrainer(world, algorithm, { threads })
  const seconds: number[] = []
  for await (const { updateSeconds } of trainer.updates({ totalSteps: updates * numRows })) seconds.push(updateSeconds)
  trainer.close()
  world.close()
  const counted = seconds.length > 1 ? seconds.slice(1) : seconds
  return counted.toSorted((a, b) => a - b)[Math.floor(counted.length / 2)]!
}

/** What is trained: until the mean return of an update's episodes reaches the target, or the steps are used up. */
const TRAININGS = {
  full: [
    { name: 'mlp 512-512', target: 475, totalSteps: 600_000, numSteps: 64, learningRate: 5e-4 },
    { name: 'convolutional 16', target: 20, totalSteps: 2_000_000, numSteps: 64, learningRate: 1e-3 },
  ],
  small: [{ name: 'mlp 16', target: 475, totalSteps: 8192, numSteps: 64, learningRate: 5e-4 }],
} as const
/** No training takes longer than this. */
const TRAIN_SECONDS = 60

/** Trains on the device, then on the processor, with the same settings. */
export async function trainOnDevice(size: 'full' | 'small', keep: (rows: object[]) => void): Promise<void> {
  const rows: object[] = []
  for (const device of ['webgpu', 'none'] as const) {
    for (const { name, target, totalSteps, numSteps, learningRate } of TRAININGS[size]) {
      const { environment, policy } = taskOf(name)
      const numLanes = name.startsWith('mlp') ? 64 : 256
      const world = await createWorld({ environment, policy: policy(device), numLanes, seed: 1 })
      const entropyCoef = 0.01
      const algorithm = ppo({ numSteps, learningRate, learningRateSchedule: 'constant', entropyCoef })
      const threads = Math.min(8, availableParallelism())
      const trainer = createTrainer(world, algorithm, { threads })
      const start = performance.now()
      const seconds = () => (performance.now() - start) / 1000
      const curve: { steps: number; episodeReturn: number }[] = []
      let reachedAtStep: number | null = null
      for await (const { steps, episodeReturn } of trainer.updates({ totalSteps })) {
        curve.push({ steps, episodeReturn })
        if (episodeReturn >= target) reachedAtStep = steps
        if (reachedAtStep !== null || seconds() > TRAIN_SECONDS) break
      }
      const taken = seconds()
      trainer.close()
      world.close()
      const every = Math.ceil(curve.length / 12)
      rows.push({
        ...{ task: environment.id, policy: name, device, threads, target, reachedAtStep, seconds: taken },
        ...{ steps: curve.at(-1)?.steps, lastReturn: curve.at(-1)?.episodeReturn },
        curve: curve
          .filter((_, i) => i % every === 0)
          .map(({ episodeReturn }) => Math.round(episodeReturn))
          .join(' '),
      })
      keep(rows)
    }
  }
}
