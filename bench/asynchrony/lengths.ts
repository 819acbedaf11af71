/** Answers of log-normal lengths, by an engine that generates each at a fixed rate; the virtual clock beside it. */
import { defineEngine } from '../../src/entries/engines.ts'
import { simulate } from '../../src/entries/orchestration.ts'
import { createTrainer, createWorld, defineTextEnvironment, languageModel, rl } from '../../src/index.ts'
import { type Figure, figure } from '../measure.ts'

/** Answers at once, and of an update. */
const BATCH = 32
const GROUP = 4
const LENGTHS = { lengthMedian: 24, lengthSigma: 1, lengthMax: 192 }
const TOKENS_PER_SECOND = 200
const SIMULATIONS = 20
const UPDATES = Number(process.env.UPDATES ?? 12)
const STALENESS = (process.env.STALENESS ?? '0,1,2,4').split(',').map(Number)

/** Tokens of the answers, in the order in which they begin: others than those of the simulation, of the same distribution. */
const lengths = Array.from({ length: 4096 }, seededLengths(1))

function seededLengths(seed: number): () => number {
  let state = seed
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0 // mulberry32
    let hash = Math.imul(state ^ (state >>> 15), 1 | state)
    hash = (hash + Math.imul(hash ^ (hash >>> 7), 61 | hash)) ^ hash
    return (((hash ^ (hash >>> 14)) >>> 0) + 0.5) / 2 ** 32
  }
  return () => {
    const normal = Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform())
    const { lengthMedian, lengthSigma, lengthMax } = LENGTHS
    return Math.min(lengthMax, Math.max(1, Math.round(lengthMedian * Math.exp(lengthSigma * normal))))
  }
}

const environment = defineTextEnvironment({
  id: 'text/lengths',
  settings: {},
  make: () => ({
    numExamples: 64,
    maxTokens: LENGTHS.lengthMax,
    alphabet: 'abcdefgh',
    example: () => ({ prompt: 'ab' }),
    respond: ({ completion }) => ({ reward: completion.length % 3 }),
  }),
})

/** Adds its tokens when they are due, whatever the thread did meanwhile. */
const engine = defineEngine('fixed rate', ({ tokenizer }) => ({
  logprobs: 'candidates',
  async begin(turn) {
    const [group, member] = turn.request.key
    const [total, first] = [lengths[(group * GROUP + member) % lengths.length]!, turn.request.generated]
    const began = performance.now()
    for (let i = first; i < total && turn.isOpen; ) {
      const due = began + (1000 * (i + 1 - first)) / TOKENS_PER_SECOND
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())))
      const end = Math.min(total, first + Math.floor(((performance.now() - began) * TOKENS_PER_SECOND) / 1000))
      for (; i < end; i++) turn.add(i + 1 === total ? tokenizer.endIds[0]! : 2 + (i % 6), -Math.log(8))
    }
  },
}))

/** A training with the engine: trained tokens a second, and the seconds of its updates. */
async function train(maxStaleness: number) {
  const world = await createWorld({
    ...{ environment: environment(), engine, numLanes: BATCH, groupSize: GROUP },
    policy: languageModel({ width: 8, layers: 1, heads: 1, context: LENGTHS.lengthMax + 8 }),
  })
  const settings = { groupsPerUpdate: BATCH / GROUP, groupSize: GROUP, updates: UPDATES, maxStaleness }
  const trainer = createTrainer(world, rl({ ...settings, lossSettings: { klCoef: 0 } }))
  const began = performance.now()
  let [tokens, updateSeconds, lanesIdle, age] = [0, 0, 0, 0]
  for await (const { rl: told } of trainer.updates()) {
    tokens += told!.sampledTokens
    updateSeconds += told!.updateSeconds / UPDATES
    lanesIdle += told!.lanesIdleSeconds
    age += told!.staleness!.mean / UPDATES
  }
  const seconds = (performance.now() - began) / 1000
  trainer.close()
  return { tokensPerSecond: tokens / seconds, updateSeconds, lanesIdle: lanesIdle / seconds, age }
}

/** What the virtual clock says of the same: the mean of several trainings of as many updates, which begin and end as this one. */
async function predict(maxStaleness: number, updateSeconds: number): Promise<number> {
  let sum = 0
  for (let seed = 1; seed <= SIMULATIONS; seed++) sum += await predictOnce(maxStaleness, updateSeconds, seed)
  return sum / SIMULATIONS
}

async function predictOnce(maxStaleness: number, updateSeconds: number, seed: number): Promise<number> {
  const { trainedTokensPerSecond } = await simulate({
    ...{ ...LENGTHS, groupSize: GROUP, groupsPerBatch: BATCH / GROUP, maxStaleness, slots: BATCH, updateSeconds },
    ...{ tokensPerSecond: TOKENS_PER_SECOND, engineTokensPerSecond: 1e9, learnerTokensPerSecond: 1e9 },
    ...{ deliverySeconds: 0, updates: UPDATES, seed },
  })
  return trainedTokensPerSecond
}

export async function benchLengths(): Promise<Figure[]> {
  const figures: Figure[] = []
  let synchronous = 0
  console.log('maxStaleness  trained tokens/s  of η = 0  simulated  measured of it  update s  lanes idle  staleness')
  for (const maxStaleness of STALENESS) {
    const { tokensPerSecond, updateSeconds, lanesIdle, age } = await train(maxStaleness)
    const predicted = await predict(maxStaleness, updateSeconds)
    if (maxStaleness === 0) synchronous = tokensPerSecond
    const cells = [
      ...[maxStaleness, tokensPerSecond.toFixed(0), `${(tokensPerSecond / synchronous).toFixed(2)} ×`],
      ...[predicted.toFixed(0), (tokensPerSecond / predicted).toFixed(3), updateSeconds.toFixed(3)],
      ...[`${(100 * lanesIdle).toFixed(0)} %`, age.toFixed(2)],
    ]
    console.log(cells.map((cell, i) => String(cell).padStart([12, 16, 8, 9, 14, 8, 10, 9][i]!)).join('  '))
    const name = `log-normal lengths, batch ${BATCH}, maxStaleness ${maxStaleness}`
    figures.push(
      figure(`${name}: trained`, 'tokens/s', [tokensPerSecond]),
      figure(`${name}: measured over simulated`, '', [tokensPerSecond / predicted], { atLeast: 0.85, atMost: 1.15 }),
    )
    if (maxStaleness === Math.max(...STALENESS) && synchronous > 0) {
      figures.push(figure(`${name}: of the synchronous one`, '', [tokensPerSecond / synchronous], { atLeast: 2 }))
    }
  }
  return figures
}
