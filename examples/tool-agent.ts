/**
 * Your own agent in one file: it is asked which day of the week it will be after a number of days, and may use a
 * calendar, which has a small cost. A few supervised examples show how to call the calendar; rewards teach the model
 * when.
 *
 *     node dist/examples/tool-agent.js                                           about a minute
 *     colonnade train ./dist/examples/tool-agent.js environment.cost=0.3 seed=2  any setting as key=value
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { createTrainer, createWorld, evaluateText, languageModel, rl, sft } from 'colonnade'
import { number } from 'colonnade/settings'
import { defineAgent, defineTool, type ToolFormat, useTools } from 'colonnade/text'

const DAYS = ['mo', 'tu', 'we', 'th', 'fr', 'sa', 'su']

const calendar = defineTool({
  name: 'calendar',
  description: 'The day of the week so many days after another.',
  parameters: {
    type: 'object',
    properties: { day: { type: 'string', enum: DAYS }, later: { type: 'integer' } },
    required: ['day', 'later'],
  },
  run: ({ day, later }) => DAYS[(DAYS.indexOf(day as string) + (later as number)) % 7],
})

/** How a model without a chat template calls it: `?mo+38`. The answer is `=fr`, or `!` after an error. */
const format: ToolFormat = {
  calls({ completion }) {
    if (!completion.startsWith('?')) return []
    const [, day, later] = /^\?([a-z]{2})\+(\d+)$/.exec(completion) ?? []
    if (day === undefined) return [{ malformed: 'no day and number' }]
    return [{ name: 'calendar', arguments: { day, later: Number(later) } }]
  },
  answers: (results) =>
    results.map(({ content, isError }) => ({ role: 'tool', content: isError ? '!' : `=${content}` })),
}

export const weekday = defineAgent({
  id: 'text/weekday',
  module: import.meta.url, // Lets a run find it again.
  settings: { cost: number(0.1, 'what a look into the calendar costs', { min: 0, max: 1 }) },
  make: ({ cost }) => ({
    numExamples: 7 * 99,
    maxTurns: 2,
    maxTokens: 7,
    alphabet: [...new Set(DAYS.join('')), ...'0123456789+?=!:'].join(''),
    example(index) {
      const [day, later] = [DAYS[index % 7]!, 1 + Math.floor(index / 7)]
      const answer = DAYS[(index + later) % 7]!
      const said = { role: 'assistant', content: answer }
      const asked = { role: 'assistant', content: `?${day}+${later}` }
      // One in four shows a call of the calendar; the others only show an answer.
      const demonstration = (index * 5) % 4 === 0 ? [asked, { role: 'tool', content: `=${answer}` }, said] : [said]
      return { prompt: `${day}+${later}:`, answer, demonstration }
    },
    async run(context) {
      const { turn, calls } = await useTools(context, { tools: [calendar], format, maxRounds: 1 })
      const isRight = turn.completion === context.example.answer
      return { reward: isRight ? 1 - cost * calls : 0, components: { right: isRight ? 1 : 0, calls } }
    },
  }),
})

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const environment = weekday()
  const policy = languageModel({ width: 32, layers: 2, context: 32 })
  const world = await createWorld({ environment, policy, numLanes: 64, groupSize: 8, seed: 1 })
  const trainer = createTrainer(world, [
    sft({ updates: 200, learningRate: 5e-3 }),
    rl({ updates: 40, groupsPerUpdate: 32, groupSize: 8, lossSettings: { klCoef: 0, entropyCoef: 0.01 } }),
  ])
  for await (const _ of trainer.updates({ phase: 'sft' }));
  for await (const { step, rl } of trainer.updates()) {
    const { right, calls } = rl!.components
    if (step === 1 || step % 20 === 0)
      console.log(`update ${step}: right ${right!.toFixed(2)}, calls ${calls!.toFixed(2)}`)
  }
  const { weights } = trainer.world.cohort()
  const { reward, components } = await evaluateText({ environment, policy, weights, episodes: 200 })
  console.log(`greedy: reward ${reward!.mean.toFixed(2)}, calls ${components.calls!.toFixed(2)}`)
}
