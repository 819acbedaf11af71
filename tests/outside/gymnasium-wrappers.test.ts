/** Our wrappers beside Gymnasium's own, where one is installed: from the same states, with the same actions. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import {
  actionRepeat,
  frameStack,
  fromGymnasium,
  normalizeRewards,
  rescaleAction,
  timeLimit,
  wrap,
} from '../../src/entries/environments.ts'
import {
  type BoxSpace,
  cartPole,
  collect,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  type EpisodeCohort,
  mlp,
  pendulum,
  ppo,
} from '../../src/index.ts'
import { skipLoudly } from '../support/command.ts'
import { attempt, findInstalled, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const script = fileURLToPath(new URL('../support/gymnasium_wrappers.py', import.meta.url))
const [NUM_LANES, NUM_STEPS, GAMMA] = [3, 60, 0.9]

interface Case {
  readonly environment: EnvironmentDefinition
  /** What Gymnasium is told of it. */
  readonly told: {
    readonly id: 'CartPole-v1' | 'Pendulum-v1'
    readonly limit: number | null
    readonly rescale: readonly [number, number] | null
    readonly repeat: number
    readonly frames: number
    readonly around: number | null
  }
}

const cases: readonly Case[] = [
  {
    environment: wrap(
      pendulum({ maxEpisodeSteps: 17 }),
      rescaleAction({ low: -1, high: 0.5 }),
      actionRepeat({ times: 3 }),
      frameStack({ frames: 4 }),
    ),
    told: { id: 'Pendulum-v1', limit: 17, rescale: [-1, 0.5], repeat: 3, frames: 4, around: null },
  },
  {
    environment: wrap(cartPole(), frameStack({ frames: 3 }), timeLimit({ maxEpisodeSteps: 16 })),
    told: { id: 'CartPole-v1', limit: null, rescale: null, repeat: 1, frames: 3, around: 16 },
  },
  {
    environment: wrap(
      cartPole({ maxEpisodeSteps: 13 }),
      actionRepeat({ times: 2 }),
      frameStack({ frames: 2 }),
      timeLimit({ maxEpisodeSteps: 30 }),
    ),
    told: { id: 'CartPole-v1', limit: 13, rescale: null, repeat: 2, frames: 2, around: 30 },
  },
]

interface Step {
  readonly observation: number[]
  readonly reward: number
  readonly terminated: number
  readonly truncated: number
}
interface Episode {
  readonly steps: readonly Step[]
  readonly actions: readonly number[][]
  /** What the last step led to; null where the rollout was over first. */
  readonly last: number[] | null
}

/** What it does that no side has anything to say about, in each autoreset mode: episodes, lane by lane. */
async function played({ environment }: Case, autoreset: 'same-step' | 'next-step'): Promise<Episode[]> {
  const policy = mlp({ hidden: [4] })
  const world = await createWorld({ environment, policy, numLanes: NUM_LANES, seed: 4, autoreset })
  world.reserve(world.draft(), { numSteps: NUM_STEPS, learner: {} })
  collect(world, NUM_STEPS)
  const { rollout, final } = world.cohort() as EpisodeCohort
  const numRows = NUM_STEPS * NUM_LANES
  const row = (column: ArrayLike<number>, at: number, width = column.length / numRows) =>
    Array.from({ length: width }, (_, k) => column[at * width + k]!)
  const width = rollout.observation.length / numRows
  const episodes: Episode[] = []
  for (let n = 0; n < NUM_LANES; n++) {
    let open: { steps: Step[]; actions: number[][] } = { steps: [], actions: [] }
    for (let at = n; at < numRows; at += NUM_LANES) {
      if (rollout.valid[at] === 0) continue
      const [terminated, truncated] = [rollout.terminated[at]!, rollout.truncated[at]!]
      const { low, high } = environment.actionSpace as BoxSpace
      const applied = row(rollout.action, at).map((value, k) =>
        environment.actionSpace.kind === 'box' ? Math.min(Math.max(value, low[k]!), high[k]!) : value,
      )
      open.actions.push(applied)
      open.steps.push({ observation: row(rollout.observation, at), reward: rollout.reward[at]!, terminated, truncated })
      const place = final.row.subarray(0, final.count[0]).indexOf(at)
      if (terminated + truncated === 0) continue
      episodes.push({ ...open, last: row(final.observation, place, width) })
      open = { steps: [], actions: [] }
    }
    if (open.steps.length > 0) episodes.push({ ...open, last: null })
  }
  return episodes
}

/** The state of Gymnasium's environment in which an episode begins. */
function stateOf({ told }: Case, { steps }: Episode): number[] {
  const { observation } = steps[0]!
  if (told.id === 'CartPole-v1') return observation.slice(0, 4)
  const [cosine, sine, velocity] = observation as [number, number, number]
  return [Math.atan2(sine, cosine), velocity]
}

/** One update of a policy and a system that normalize, on a lane that never ends. */
async function trained() {
  const systems = [normalizeRewards({ gamma: GAMMA, clip: 1e9 })]
  const environment = wrap(pendulum(), timeLimit({ maxEpisodeSteps: null }))
  const policy = mlp({ hidden: [4], normalizeObservations: true })
  const world = await createWorld({ environment, policy, numLanes: 1, seed: 2, systems })
  const trainer = createTrainer(world, ppo({ numSteps: 256, numMinibatches: 1, updateEpochs: 1 }))
  for await (const _ of trainer.updates({ totalSteps: 256 }));
  const { rollout, weights, systems: bound } = world.cohort() as EpisodeCohort
  const [cosine, sine, velocity] = rollout.observation as unknown as [number, number, number]
  return {
    request: {
      state: [Math.atan2(sine, cosine), velocity],
      actions: Array.from(rollout.action, (a) => [a]),
      gamma: GAMMA,
    },
    mean: [...weights.subarray(-6, -3)],
    deviation: [...weights.subarray(-3)],
    ofReturn: (bound[0]!.rollout.shared as { deviation: Float32Array }).deviation[0]!,
  }
}

let why = ''
let python = ''
let ours: { readonly sameStep: Episode[]; readonly nextStep: Episode[] }[]
let normalizing: Awaited<ReturnType<typeof trained>>
let theirs: {
  wrapped: { shape: number[]; episodes: Episode[] }[]
  normalized: { mean: number[]; deviation: number[]; of_return: number }
}

beforeAll(async () => {
  const found = await findInstalled('gymnasium, numpy')
  if ('why' in found) {
    why = `Gymnasium's wrappers (${found.why})`
    return
  }
  ours = []
  for (const each of cases) {
    ours.push({ sameStep: await played(each, 'same-step'), nextStep: await played(each, 'next-step') })
  }
  normalizing = await trained()
  const request = {
    wrapped: cases.map((each, i) => ({
      ...each.told,
      episodes: [...ours[i]!.sameStep, ...ours[i]!.nextStep].map((episode) => ({
        state: stateOf(each, episode),
        actions: episode.actions,
      })),
    })),
    normalized: normalizing.request,
  }
  const path = join(await temporaryFolder(), 'request.json')
  await writeFile(path, JSON.stringify(request))
  python = found.python
  const { code, stdout, stderr } = await attempt(python, [script, path])
  expect(code, stderr).toBe(0)
  theirs = JSON.parse(stdout)
}, PYTHON_MS)

beforeEach((context) => {
  if (why !== '') skipLoudly(context, why)
})

describe.each(cases.map(({ environment, told }, i) => [`${told.id}, ${environment.wrappers!.map(({ id }) => id)}`, i]))(
  '%s',
  (_, i) => {
    test('is what Gymnasium makes of it, step by step, with each autoreset', () => {
      const [each, said] = [cases[i as number]!, theirs.wrapped[i as number]!]
      const space = each.environment.observationSpace as BoxSpace
      expect(space.shape).toEqual(said.shape)
      const episodes = [...ours[i as number]!.sameStep, ...ours[i as number]!.nextStep]
      let ended = 0
      for (const [e, { steps, last }] of episodes.entries()) {
        const told = said.episodes[e]!
        expect(told.steps).toHaveLength(steps.length)
        for (const [t, step] of steps.entries()) {
          const { observation, reward, terminated, truncated } = told.steps[t]!
          for (const [k, value] of observation.entries()) expect(step.observation[k]).toBeCloseTo(value, 3)
          expect(step.reward).toBeCloseTo(reward, 3)
          expect([t, step.terminated, step.truncated]).toEqual([t, terminated, truncated])
        }
        if (last === null) continue
        ended++
        for (const [k, value] of told.last!.entries()) expect(last[k]).toBeCloseTo(value, 3)
      }
      expect(ended).toBeGreaterThan(10)
    })
  },
)

test('normalized observations and rewards have the moments of Gymnasium’s, which begin with one ten-thousandth of a row', () => {
  const { mean, deviation, of_return } = theirs.normalized
  for (let k = 0; k < 3; k++) {
    expect(normalizing.mean[k]).toBeCloseTo(mean[k]!, 3)
    expect(normalizing.deviation[k]! / deviation[k]!).toBeCloseTo(1, 3)
  }
  expect(normalizing.ofReturn / of_return).toBeCloseTo(1, 4)
})

test('an environment of Python keeps its limit below a longer one', async () => {
  const inside = fromGymnasium({ id: 'Pendulum-v1', maxEpisodeSteps: 4, python })
  const world = await createWorld({
    environment: wrap(inside(), timeLimit({ maxEpisodeSteps: 9 })),
    policy: mlp({ hidden: [4] }),
    numLanes: 2,
  })
  try {
    world.reserve(world.draft(), { numSteps: 10, learner: {} })
    await collect(world, 10)
    const { truncated } = (world.cohort() as EpisodeCohort).rollout
    expect(Array.from({ length: 10 }, (_, t) => truncated[2 * t])).toEqual([0, 0, 0, 1, 0, 0, 0, 1, 0, 0])
  } finally {
    world.close()
  }
})
