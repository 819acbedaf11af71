/**
 * Your own text environment with several turns: guess a number from 0 to 9. After each guess the environment says `<`
 * or `>`, and fewer guesses give a higher reward. A small model first sees guesses as examples, then learns from its
 * own conversations what to guess next. It takes about ten seconds.
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import {
  createTrainer,
  createWorld,
  defineTextEnvironment,
  evaluateText,
  languageModel,
  rl,
  sft,
  type Turn,
} from 'colonnade'

const GUESSES = 4

export const guess = defineTextEnvironment({
  id: 'text/guess',
  module: import.meta.url, // Lets a resumed run make the environment again from its id.
  settings: {},
  make: () => ({
    alphabet: '0123456789<>?',
    numExamples: 100,
    maxTurns: GUESSES,
    maxTokens: 2, // A digit, and the end of the turn.
    example: (index) => ({ prompt: '?', number: index % 10, answer: String((index * 7) % 10) }),
    respond({ completion, example, turn }: Turn) {
      const number = example.number as number
      if (!/^\d$/.test(completion)) return { reward: 0 }
      if (Number(completion) === number) return { reward: 1 - turn / 10 }
      return { reward: 0, messages: [{ role: 'user', content: number < Number(completion) ? '<' : '>' }] }
    },
  }),
})

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const environment = guess()
  const policy = languageModel({ width: 32, layers: 2, context: 32 })
  const world = await createWorld({ environment, policy, numLanes: 64, groupSize: 16, seed: 1 })
  const trainer = createTrainer(world, [
    sft({ updates: 20 }),
    rl({ updates: 110, groupsPerUpdate: 20, groupSize: 16, lossSettings: { klCoef: 0, entropyCoef: 0.01 } }),
  ])
  for await (const _ of trainer.updates({ phase: 'sft' }));
  for await (const { step, rl } of trainer.updates()) {
    if (step % 50 === 0)
      console.log(`update ${step}: reward ${rl!.reward!.toFixed(2)}, entropy ${rl!.entropy.toFixed(2)}`)
  }
  const { weights } = trainer.world.cohort()
  const { reward, samples } = await evaluateText({ environment, policy, weights, episodes: 100 })
  for (const { prompt, completion } of samples) console.log(`${prompt} ${completion.replaceAll('<|end|>', ' ')}`)
  console.log(`greedy: reward ${reward!.mean.toFixed(3)} over every number`)
}
