/** The lanes that are seen, in a worker of their own: they act with the newest weights, and the last one by a person's hand. */
import { createWorld, doctor, type EpisodeCohort, infer, reset, step, store, type World } from 'colonnade'
import type { AskLanes, Frame, ToldLanes } from './messages.ts'
import { environmentOf } from './own.ts'
import { recipeOf } from './recipe.ts'

let world: World<EpisodeCohort> | undefined
let frames: MessagePort

function tell(told: ToldLanes, moved: Transferable[] = []): void {
  postMessage(told, { transfer: moved })
}

async function begin({ source, seed, numLanes, ...given }: Extract<AskLanes, { ask: 'begin' }>): Promise<void> {
  ;({ frames } = given)
  const environment = environmentOf(source)
  const { policy } = recipeOf(environment)
  world?.close()
  world = await createWorld({ environment, policy, numLanes, seed })
  const { observationSpace, actionSpace } = environment
  if (observationSpace.kind !== 'box' || actionSpace.kind === 'multi-discrete') {
    throw new Error('the page shows environments with a box of observations, and one action or a box of them')
  }
  const isBox = actionSpace.kind === 'box'
  tell({
    told: 'begun',
    numLanes,
    shape: observationSpace.shape,
    low: observationSpace.low,
    high: observationSpace.high,
    numActions: isBox ? 0 : actionSpace.n,
    bounds: isBox ? [actionSpace.low[0]!, actionSpace.high[0]!] : [0, 0],
  })
}

function frame({ steps, lane, action }: Extract<AskLanes, { ask: 'frame' }>): void {
  const cohort = world!.cohort()
  const { chosen, applied, logprob, value } = cohort.action
  const width = chosen.length / cohort.numLanes
  for (let i = 0; i < steps; i++) {
    reset(world!)
    void infer(world!) // A perceptron answers at once.
    if (action !== null) for (const column of [chosen, applied]) column.fill(action, (cohort.numLanes - 1) * width)
    step(world!)
    store(world!)
  }
  const { episode } = cohort
  const all = Float32Array.from(cohort.observation.current as ArrayLike<number>)
  const size = all.length / cohort.numLanes
  const observation = all.slice(lane * size, (lane + 1) * size)
  const seen = {
    action: [...applied.subarray(lane * width, (lane + 1) * width)],
    probability: Math.exp(logprob[lane]!),
    value: value[lane]!,
    episodeReturn: episode.episodeReturn[lane]!,
  }
  const mine = episode.episodeReturn[cohort.numLanes - 1]!
  tell({ told: 'frame', observation, seen, mine })
  const drawn: Frame = { observation: all, taken: episode.step.slice() }
  frames.postMessage(drawn, [drawn.observation.buffer, drawn.taken.buffer])
}

async function answer(asked: AskLanes): Promise<void> {
  if (asked.ask === 'begin') await begin(asked)
  else if (asked.ask === 'examine') tell({ told: 'browser', report: await doctor() })
  else if (world === undefined) return
  else if (asked.ask === 'weights') world.cohort().weights.set(asked.weights)
  else frame(asked)
}

/** Messages are answered in their order. */
let last = Promise.resolve()
addEventListener('message', ({ data }: MessageEvent<AskLanes>) => {
  last = last
    .then(() => answer(data))
    .catch((error) => tell({ told: 'wrong', message: error instanceof Error ? error.message : String(error) }))
})
