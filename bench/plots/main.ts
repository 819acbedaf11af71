/** `npm run bench -- plots`: steps a second against lanes and against hidden width, as SVG in docs/, then one JSON line. */
import { availableParallelism } from 'node:os'
import { cartPole } from '../../src/index.ts'
import { environmentRunner } from '../environments/steps.ts'
import { figure, interleave, rates } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { NUM_STEPS, rolloutRunner, trainingRunner } from '../training/steps.ts'
import { type Point, writePlot } from './draw.ts'

const LANES = [64, 256, 1024, 4096, 16_384, 65_536]
const WIDTHS = [64, 128, 256, 512]
/** Lanes of the sweep over widths. */
const SWEPT_LANES = 256
/** Steps of one run: of the environment alone, of rollouts, of training. */
const ENOUGH = { environment: 2_097_152, rollout: 262_144, training: 8192 }
const REPEATS = 5

async function writePlots(): Promise<void> {
  const threads = Math.min(2, availableParallelism())
  const lanes: Point[] = []
  for (const numLanes of LANES) {
    const ticks = Math.ceil(ENOUGH.environment / numLanes)
    const { ours } = await interleave({ ours: await environmentRunner(cartPole(), numLanes, ticks) }, timing)
    const name = `CartPole-v1, ${numLanes} lanes, environment only`
    lanes.push({
      at: numLanes,
      what: 'environment only',
      figure: figure(name, 'steps/s', rates(ticks * numLanes, ours)),
    })
    lanes.push(...(await networkPoints(numLanes, numLanes, 64, threads)))
  }
  const widths: Point[] = []
  for (const width of WIDTHS) widths.push(...(await networkPoints(width, SWEPT_LANES, width, threads)))
  await writePlot('bench-lanes.svg', lanes, 'CartPole-v1, two 64-64 nets: lanes →', LANES)
  await writePlot(
    'bench-hidden.svg',
    widths,
    `CartPole-v1, ${SWEPT_LANES} lanes, two nets: units a hidden layer →`,
    WIDTHS,
  )
  reportRoom(
    'plots',
    [...lanes, ...widths].map((point) => point.figure),
  )
}

const timing = { repeats: REPEATS, warmups: 1 }

/** Rollout and training at one number of lanes and one width. */
async function networkPoints(at: number, numLanes: number, width: number, threads: number): Promise<Point[]> {
  const hidden = [width, width]
  const steps = numLanes * NUM_STEPS
  const rollouts = Math.ceil(ENOUGH.rollout / steps)
  const updates = Math.ceil(ENOUGH.training / steps)
  const rollout = await rolloutRunner({ numLanes, hidden })
  const runners = [1, threads].map((count) => trainingRunner({ numLanes, hidden, threads: count }))
  const [single, several] = await Promise.all(runners)
  const seconds = await interleave(
    {
      rollout: () => Array.from({ length: rollouts }, rollout).reduce((sum, taken) => sum + taken),
      single: () => single!.train(updates),
      several: () => several!.train(updates),
    },
    timing,
  )
  single!.close()
  several!.close()
  const name = `CartPole-v1, ${numLanes} lanes, two ${width}-${width} nets`
  const point = (what: string, count: number, taken: number[]): Point => ({
    at,
    what,
    figure: figure(`${name}, ${what}`, 'steps/s', rates(count * steps, taken)),
  })
  return [
    point('rollout', rollouts, seconds.rollout),
    point('training, 1 thread', updates, seconds.single),
    ...(threads > 1 ? [point(`training, ${threads} threads`, updates, seconds.several)] : []),
  ]
}

await writePlots()
