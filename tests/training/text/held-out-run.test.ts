import { createHash } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { heldOutOf } from '../../../src/entries/text.ts'
import { textEnvironmentFactory } from '../../../src/environments/tasks/registry.ts'
import { readTrajectories } from '../../../src/tables/trajectories/trajectory-table.ts'
import { loadTrainedModel } from '../../../src/training/backends/trained-model.ts'
import type { ConversationRunSummary } from '../../../src/training/run/conversation-run.ts'
import { configureRun, startRun } from '../../../src/training/run/run.ts'
import { evaluateText } from '../../../src/training/text/evaluate/evaluate.ts'
import { inProcess } from '../../support/command.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const KEYS = {
  ...{ 'sft.updates': '3', 'sft.batchSize': '2', 'rl.updates': '4', 'rl.groupsPerUpdate': '4', 'rl.groupSize': '2' },
  ...{ 'languageModel.width': '8', 'languageModel.layers': '1', trajectories: 'all', numLanes: '8', threads: '1' },
  ...{ 'environment.numExamples': '60', heldOutFraction: '0.4', heldOutSeed: '5', heldOutEpisodes: '30' },
}
const environment = textEnvironmentFactory('text/arithmetic-1')({ numExamples: 60 } as never)

/** The prompts that KEYS hold out, by another road. */
function heldOutPrompts(): Set<string> {
  const prompts = new Set(Array.from({ length: 60 }, (_, i) => environment.example(i).prompt as string))
  const hash = (prompt: string) =>
    createHash('sha256')
      .update(JSON.stringify([5, prompt]))
      .digest('hex')
  const inOrder = [...prompts].sort((a, b) => (hash(a) < hash(b) ? -1 : 1))
  return new Set(inOrder.slice(0, Math.round(0.4 * inOrder.length)))
}

let folder: string
let summary: ConversationRunSummary
let taught: string[]
beforeAll(async () => {
  folder = join(await temporaryFolder(), 'run')
  const run = await startRun(await configureRun('text/arithmetic-1', KEYS), folder)
  const { examples } = run.trainer.world.cohort()
  taught = Array.from(examples!.numbers, (index) => environment.example(index).prompt as string)
  summary = await run.train()
})

test('a training takes no question that is held out, for supervised steps and updates alike', async () => {
  const heldOut = heldOutPrompts()
  const files = readdirSync(join(folder, 'trajectories')).map((name) => join(folder, 'trajectories', name))
  const { trajectories } = await readTrajectories(...files)
  const asked = trajectories.order().map((i) => environment.example(trajectories.row(i).promptId).prompt as string)
  expect(new Set(asked).size).toBeGreaterThan(10)
  expect([...taught, ...asked].filter((prompt) => heldOut.has(prompt))).toEqual([])
})

test('its summary says how the model does on those, which is what it does when it is evaluated', async () => {
  const { policy, weights, settings } = await loadTrainedModel(folder)
  const prompts: unknown[] = []
  const watched = {
    ...environment,
    respond(turn: Parameters<typeof environment.respond>[0], signal: AbortSignal) {
      prompts.push(turn.example.prompt)
      return environment.respond(turn, signal)
    },
  }
  const heldOut = heldOutOf(settings, 'evaluation')
  const evaluation = await evaluateText({ environment: watched, policy, weights, episodes: 30, ...heldOut })
  expect(new Set(prompts)).toEqual(heldOutPrompts())
  const { episodes, numQuestions, reward, components, numUnknown } = evaluation
  expect(numQuestions).toBe(heldOutPrompts().size)
  expect(summary.heldOut).toEqual({ episodes, numQuestions, reward, components, numUnknown })
  const evaluate = async (...words: string[]) => {
    const { stdout, stderr } = await inProcess(['evaluate', folder, 'episodes=30', '--json', ...words])
    return stdout === '' ? stderr : JSON.parse(stdout)
  }
  expect(await evaluate()).toMatchObject({ questions: 'held-out', numQuestions, reward })
  expect(await evaluate('questions=training')).toMatchObject({ numQuestions: new Set(taught).size })
  expect(await evaluate('questions=all')).toMatchObject({ questions: 'all', numQuestions: null })
})

test('a run that holds nothing out has nothing to say of it, and cannot be asked for it', async () => {
  const run = join(await temporaryFolder(), 'run')
  const keys = { ...KEYS, heldOutFraction: '0', 'rl.updates': '1' }
  const { heldOut } = await (await startRun(await configureRun('text/arithmetic-1', keys), run)).train()
  expect(heldOut).toBeNull()
  const { code, stderr } = await inProcess(['evaluate', run, 'questions=held-out'])
  expect(code).toBe(1)
  expect(stderr).toContain(`questions: got held-out, expected auto or all: ${run} was trained with heldOutFraction=0`)
})
