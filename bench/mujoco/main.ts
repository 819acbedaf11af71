/**
 * `npm run bench -- mujoco`: steps/s of MuJoCo's tasks by our WebAssembly lanes beside Gymnasium's vector environments. Needs Python
 * 3.11 or newer and PyPI at the first visit.
 *
 * Both step the same number of lanes by normal actions within the bounds, with the same version of MuJoCo. Gymnasium's actions are drawn before the
 * clock starts. Ours come from the untrained policy: `rollouts` include its time, `environment steps` do not.
 */
import { availableParallelism } from 'node:os'
import {
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  environmentFactory,
  mlp,
  ppo,
} from '../../src/index.ts'
import { Companion } from '../companion.ts'
import { check, type Figure, figure, interleave, rates, ratio, type Wanted } from '../measure.ts'
import { peerPython, peerSource } from '../peers/python.ts'
import { reportRoom } from '../report.ts'

/** What the project asks of rollouts beside SyncVectorEnv, with two threads. */
const TASKS = [
  ['HalfCheetah-v5', { atLeast: 1 }],
  ['Hopper-v5', { atLeast: 1.5 }],
  ['Ant-v5', { atLeast: 1.5 }],
  ['Humanoid-v5', { atLeast: 1 }],
] as const
const NUM_LANES = 16
const NUM_STEPS = 128
const ROWS = NUM_LANES * NUM_STEPS
const REPEATS = 7
/** Ours come from another draw of the same actions, so episodes end about as often. */
const APART = 0.25

interface Answer {
  readonly seconds: number
  /** Episodes that ended. */
  readonly episodes: number
  readonly versions: string
}

/** Rollouts on so many threads; `stepping` and `whole` have the seconds of each. */
async function oursOf(environment: EnvironmentDefinition, threads: number) {
  const world = await createWorld({ environment, policy: mlp(), numLanes: NUM_LANES, seed: 1 })
  // A learning rate of 1e-12 and one minibatch: the actions stay those of an untrained policy.
  const settings = { numSteps: NUM_STEPS, learningRate: 1e-12, numMinibatches: 1, updateEpochs: 1 }
  const trainer = createTrainer(world, ppo(settings), { threads })
  const updates = trainer.updates({ totalSteps: Number.MAX_SAFE_INTEGER })
  let episodes = 0
  const roll = async () => {
    const { phaseSeconds, rolloutSeconds, episodes: ended } = (await updates.next()).value!
    episodes = ended
    return { stepping: phaseSeconds.reset + phaseSeconds.step + phaseSeconds.store, whole: rolloutSeconds }
  }
  return { roll, episodes: () => episodes, close: () => trainer.close() }
}

async function figuresOf(python: string, environment: EnvironmentDefinition, wanted: Wanted): Promise<Figure[]> {
  const counts = availableParallelism() > 1 ? [1, 2] : [1]
  const twins = ['sync', 'async'].map((kind) => {
    const words = ['--environment', environment.id, '--kind', kind, '--lanes', `${NUM_LANES}`]
    return {
      name: kind === 'sync' ? 'SyncVectorEnv' : 'AsyncVectorEnv',
      peer: new Companion(python, [peerSource('mujoco_twins.py'), ...words]),
    }
  })
  const ours = await Promise.all(counts.map(async (threads) => ({ threads, ...(await oursOf(environment, threads)) })))
  const rollouts = new Map(counts.map((threads) => [threads, [] as number[]]))
  const ended: Record<string, number> = {}
  let versions = ''
  try {
    const runners: Record<string, () => Promise<number>> = {}
    for (const { threads, roll } of ours) {
      runners[`${threads}`] = async () => {
        const { stepping, whole } = await roll()
        rollouts.get(threads)!.push(whole)
        return stepping
      }
    }
    for (const { name, peer } of twins) {
      ended[name] = 0
      runners[name] = async () => {
        const answer = await peer.ask<Answer>(`step ${NUM_STEPS}`)
        ended[name]! += answer.episodes
        versions = answer.versions
        return answer.seconds
      }
    }
    const seconds = await interleave(runners, { repeats: REPEATS, warmups: 2 })
    const [own, theirs] = [ours[0]!.episodes(), ended.SyncVectorEnv!]
    check(
      Math.abs(own - theirs) <= APART * Math.max(own, theirs) + 4,
      `of ${environment.id}, ${own} episodes ended here and ${theirs} in Gymnasium`,
    )
    const title = `${environment.id}, ${NUM_LANES} lanes`
    const told = (what: string, taken: number[]) => figure(`${title}, ${what}`, 'steps/s', rates(ROWS, taken))
    return [
      ...twins.map(({ name }) => told(`${name}, ${versions}`, seconds[name]!)),
      ...ours.flatMap(({ threads }) => {
        const on = `Colonnade, ${threads} thread${threads === 1 ? '' : 's'}`
        const beside = (taken: number[], asked?: Wanted) => [
          ratio('SyncVectorEnv', seconds.SyncVectorEnv!, taken, asked),
          ratio('AsyncVectorEnv', seconds.AsyncVectorEnv!, taken),
        ]
        const whole = rollouts.get(threads)!.slice(-REPEATS)
        const figures = [
          { ...told(`rollouts, ${on}`, whole), ratios: beside(whole, threads === 2 ? wanted : undefined) },
        ]
        // Threads take lanes as they get free, so one thread's seconds of steps are not those of several.
        const steps = seconds[`${threads}`]!
        return threads > 1
          ? figures
          : [{ ...told(`environment steps, ${on}`, steps), ratios: beside(steps) }, ...figures]
      }),
    ]
  } finally {
    for (const { peer } of twins) peer.close()
    for (const { close } of ours) close()
  }
}

const python = peerPython()
const figures: Figure[] = []
for (const [id, wanted] of TASKS) {
  const environment = environmentFactory(id)() as EnvironmentDefinition
  figures.push(...(await figuresOf(python, environment, wanted)))
}
reportRoom('mujoco', figures)
