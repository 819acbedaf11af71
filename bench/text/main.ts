/**
 * `npm run bench -- text`: conversations of very different lengths, side by side. Continuous batching gives a lane that is
 * done its next conversation at once; the others begin 32 and wait for the longest, with finished lanes left out of the pass
 * or, as static batches have it, padded. Then training by one thread and by several, and constrained answers.
 */
import { byteTokenizer, type LanguageModelDefinition } from '../../src/entries/text.ts'
import {
  type ConversationCohort,
  createWorld,
  defineTextEnvironment,
  languageModel,
  Random,
  tick,
  type World,
} from '../../src/index.ts'
import { check, figure, interleave, rates, ratio, secondsOf } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { constrainedFigures } from './constrained.ts'
import { threadFigures } from './threads.ts'

const LANES = 32
const ROUNDS = 6
const LONGEST = 256
const CONVERSATIONS = LANES * ROUNDS

/** Lengths log-uniform on 1 … 256. */
const random = new Random(1)
const lengths = Array.from({ length: CONVERSATIONS }, (_, i) => {
  random.draw(0, i, 0, 0)
  return Math.floor((LONGEST + 1) ** random.uniform(0))
})
const total = lengths.reduce((sum, length) => sum + length, 0)

/** Conversation i has the budget that `budgetOf` says; nothing else ends it. */
function environment(budgetOf: (index: number) => number) {
  return defineTextEnvironment({
    id: 'text/lengths',
    settings: {},
    make: () => ({
      numExamples: CONVERSATIONS,
      example: (index) => ({ prompt: '0', maxTokens: budgetOf(index) }),
      respond: () => ({ reward: 0 }),
    }),
  })()
}

/** 0.9M parameters, and a tokenizer without an end. */
const policy: LanguageModelDefinition = {
  id: 'endless',
  parameters: {},
  async open() {
    const shape = { width: 128, layers: 4, heads: 4, context: LONGEST + 4, anyText: true }
    const opened = await languageModel(shape).open(environment(() => 1))
    return { ...opened, tokenizer: { ...byteTokenizer(), endIds: [] } }
  },
}

/** Ticks until `count` conversations are over. */
function finish(world: World<ConversationCohort>, count: number): void {
  const { trajectories } = world.cohort()
  while (trajectories.count < count) tick(world)
}

async function worldOf(budgetOf: (index: number) => number): Promise<World<ConversationCohort>> {
  const world = await createWorld({ environment: environment(budgetOf), policy, numLanes: LANES, seed: 1 })
  world.cohort().released = 0
  return world
}

/** All conversations begin as soon as there is a lane. Each run has a world of its own, and so the same conversations. */
async function continuous(): Promise<number> {
  const world = await worldOf((index) => lengths[index]!)
  return secondsOf(() => {
    world.cohort().released = CONVERSATIONS
    finish(world, CONVERSATIONS)
  })
}

/** A round of conversations begins when the one before is over. */
async function waiting(budgetOf: (index: number) => number): Promise<number> {
  const world = await worldOf(budgetOf)
  return secondsOf(() => {
    for (let round = 1; round <= ROUNDS; round++) {
      world.cohort().released = round * LANES
      finish(world, round * LANES)
    }
  })
}

const plain = await worldOf((index) => lengths[index]!)
plain.cohort().released = CONVERSATIONS
finish(plain, CONVERSATIONS)
const { trajectories } = plain.cohort()
const sorted = trajectories.take(trajectories.order()).columns()
const order = Array.from(sorted.promptId)
check(sorted.lossMask.reduce((sum, flag) => sum + flag, 0) === total, `${total} tokens are not what was sampled`)

// In a static batch every lane goes on to the longest of its round; which round an example is in, its place in the order says.
const rounds = Array.from({ length: ROUNDS }, (_, round) => order.slice(round * LANES, (round + 1) * LANES))
const longestOf = new Map(
  rounds.flatMap((members) => {
    const longest = Math.max(...members.map((index) => lengths[index]!))
    return members.map((index) => [index, longest] as const)
  }),
)
const ceiling = rounds.reduce((sum, members) => sum + LANES * longestOf.get(members[0]!)!, 0) / total

// Results do not depend on the way: token by token those of one lane at a time.
const single = await createWorld({ environment: environment((index) => lengths[index]!), policy, numLanes: 1, seed: 1 })
single.cohort().released = LANES
finish(single, LANES)
for (let i = 0; i < LANES; i++) {
  const [alone, among] = [single.cohort().trajectories.row(i), trajectories.take(trajectories.order()).row(i)]
  check(String(alone.token) === String(among.token), `conversation ${i} differs from itself alone`)
  check(String(alone.logprob) === String(among.logprob), `the logprobs of conversation ${i} differ from those alone`)
}

const seconds = await interleave(
  {
    continuous,
    waiting: () => waiting((index) => lengths[index]!),
    padded: () => waiting((index) => longestOf.get(index)!),
  },
  { repeats: 5 },
)
const shape = `${LANES} lanes, lengths log-uniform on 1–${LONGEST}, 0.9M parameters, one thread`
reportRoom('text', [
  {
    ...figure(`continuous batching, ${shape}`, 'tokens/s', rates(total, seconds.continuous)),
    ratios: [
      ratio('waiting for the longest, padded', seconds.padded, seconds.continuous, { atLeast: 3 }),
      ratio('waiting for the longest, finished lanes left out', seconds.waiting, seconds.continuous),
    ],
  },
  figure('waiting for the longest, padded', 'tokens/s', rates(total, seconds.padded)),
  figure('waiting for the longest, finished lanes left out', 'tokens/s', rates(total, seconds.waiting)),
  figure('ceiling: longest over mean', '×', [ceiling]),
  ...(await threadFigures()),
  ...(await constrainedFigures()),
])
