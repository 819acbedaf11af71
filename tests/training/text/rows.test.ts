/** Rows of datasets in trainings: what they are made of, and those that are longer than the context. */
import { access, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { languageModel } from '../../../src/language/language-model.ts'
import { readTrajectories } from '../../../src/tables/trajectories/trajectory-table.ts'
import type { ConversationRunDefinition } from '../../../src/training/run/definition.ts'
import { configureRun, resumeRun, startRun } from '../../../src/training/run/run.ts'
import type { TextMetrics } from '../../../src/training/text/evaluate/metrics.ts'
import { trainOnExamples } from '../../../src/training/text/learn/sft-training.ts'
import { writeQwen3 } from '../../support/qwen3-folder.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const small = { 'languageModel.width': '16', 'languageModel.layers': '1', 'languageModel.heads': '2' }
const user = (content: string) => ({ role: 'user', content })
const assistant = (content: string) => ({ role: 'assistant', content })

async function fileOf(rows: readonly object[]): Promise<string> {
  const path = join(await temporaryFolder(), 'rows.jsonl')
  await writeFile(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
  return path
}

/** Prompts of 2 tokens (a character behind the one that begins), but for the second, of 41. */
const prompts = ['a', 'b'.repeat(40), 'c', 'd'].map((prompt) => ({ prompt, answer: 'xy' }))

async function settingsOf(rows: readonly object[], given: Record<string, string> = {}) {
  const { mode = 'sft+rl' } = given
  return configureRun('text/dataset', {
    ...small,
    ...{ threads: '1', numLanes: '2', 'environment.path': await fileOf(rows), 'languageModel.context': '32' },
    ...{ 'environment.maxTokens': '3', trajectories: 'all' },
    ...(mode.includes('sft') ? { 'sft.updates': '4', 'sft.batchSize': '4' } : {}),
    ...(mode.includes('rl') ? { 'rl.updates': '2', 'rl.groupsPerUpdate': '4', 'rl.groupSize': '2' } : {}),
    ...given,
  })
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}

describe('a row that is longer than the context', () => {
  test.each(['sft', 'rl'])('is an error before the folder of a run is there: %s', async (mode) => {
    const out = join(await temporaryFolder(), 'run')
    const starting = startRun(await settingsOf(prompts, { mode }), out)
    const length = mode === 'sft' ? 44 : 41 // With the answer of two characters and the token that ends it.
    await expect(starting).rejects.toThrow(
      new RegExp(
        `tooLong: got 1 of 4 examples too long, the longest with ${length} tokens \\(the first is example 1\\)`,
      ),
    )
    expect(await exists(out)).toBe(false)
  })

  test('is passed over where that is asked for, counted and told, also in a run that is resumed', async () => {
    const out = join(await temporaryFolder(), 'run')
    const definition = await settingsOf(prompts, { mode: 'sft+rl', tooLong: 'skip', checkpointEvery: '1' })
    const run = await startRun(definition, out)
    const stop = new AbortController()
    await run.train({ onUpdate: ({ phase }) => (phase === 'rl' ? stop.abort() : undefined), signal: stop.signal })
    const resumed = await resumeRun<ConversationRunDefinition>(out)
    const summary = await resumed.train()
    expect([summary.status, summary.updates]).toEqual(['complete', 2])
    expect(summary.tooLong).toEqual({ skipped: 1, cut: 0 })
    const groups: number[] = []
    for (const update of ['00000001', '00000002']) {
      const { trajectories } = await readTrajectories(join(out, 'trajectories', `${update}.arrow`))
      groups.push(...trajectories.columns().promptId)
    }
    expect(new Set(groups)).toEqual(new Set([0, 2, 3]))
    const losses = (await readFile(join(out, 'metrics.jsonl'), 'utf8')).trim().split('\n')
    expect(
      losses
        .map((line) => JSON.parse(line))
        .filter(({ phase }) => phase === 'sft')
        .map(({ tokens }) => tokens),
    ).toEqual([12, 12, 12, 12])
  })

  test('is cut where that is asked for: a prompt at its beginning, what is learned at its end', async () => {
    const out = join(await temporaryFolder(), 'run')
    const run = await startRun(await settingsOf(prompts, { mode: 'rl', tooLong: 'cut' }), out)
    expect((await run.train()).tooLong).toEqual({ skipped: 0, cut: 1 })
    const { trajectories } = await readTrajectories(join(out, 'trajectories', '00000001.arrow'))
    const rows = Array.from({ length: trajectories.count }, (_, i) => trajectories.row(i))
    const cut = rows.filter(({ promptId }) => promptId === 1)
    expect(cut).toHaveLength(2)
    for (const { token, lossMask } of cut) {
      const prompt = Array.from(token).filter((_, t) => lossMask[t] === 0)
      expect(prompt).toEqual(new Array(29).fill('b'.charCodeAt(0))) // With room for the three tokens of a turn.
    }

    const losses: TextMetrics[] = []
    const examples = [{ text: 'e'.repeat(50) }]
    const trainer = await trainOnExamples({
      policy: languageModel({ width: 16, layers: 1, heads: 2, anyText: true, context: 32 }),
      ...{ examples, tooLong: 'cut', settings: { updates: 1, batchSize: 1 } },
      onStep: (metrics) => losses.push(metrics),
    })
    expect(losses[0]!.tokens).toBe(31) // Behind the token that begins.
    expect(trainer.progress().tooLong).toEqual({ skipped: 0, cut: 1 })
  })

  test('of which nothing would be left to learn is passed over, and no row at all is an error', async () => {
    const policy = languageModel({ width: 16, layers: 1, heads: 2, anyText: true, context: 32 })
    const examples = [{ prompt: 'f'.repeat(60), answer: 'g' }, { text: 'short' }]
    const settings = { steps: 1, batchSize: 1 }
    const trainer = await trainOnExamples({ policy, examples, tooLong: 'cut', settings })
    expect(trainer.progress().tooLong).toEqual({ skipped: 1, cut: 0 })
    const none = trainOnExamples({ policy, examples: examples.slice(0, 1), tooLong: 'skip', settings })
    await expect(none).rejects.toThrow(
      /tooLong skip: got 1 of 1 examples too long.*expected at least one usable example/,
    )
  })
})

describe('rows to learn', () => {
  const rows = {
    messages: [{ messages: [user('hi'), assistant('you'), user('more'), assistant('no'), user('bye')] }],
    text: [{ text: 'words' }],
    'prompt and completion': [{ prompt: 'a', completion: 'bcd' }],
    'messages of prompt and completion': [{ prompt: [user('a')], completion: [assistant('bcd')] }],
  }
  const numLearned = { messages: 4 + 3, text: 6, 'prompt and completion': 4, 'messages of prompt and completion': 4 }

  test.each(Object.entries(rows))('of %s go into supervised fine-tuning on the command line', async (name, given) => {
    const out = join(await temporaryFolder(), 'run')
    const definition = await settingsOf(given, { mode: 'sft', 'sft.batchSize': '1', 'languageModel.context': '64' })
    const seen: number[] = []
    await (await startRun(definition, out)).train({ onUpdate: ({ tokens }) => seen.push(tokens) })
    expect(seen).toEqual(new Array(4).fill(numLearned[name as keyof typeof rows]))
  })

  test('in any form go into runSftTraining, and what is none is named', async () => {
    const policy = languageModel({ width: 16, layers: 1, heads: 2, anyText: true })
    const examples = [...rows.messages, ...rows.text, { prompt: 'a', answer: 'bcd' }]
    const seen: number[] = []
    await trainOnExamples({
      policy,
      examples,
      settings: { updates: 3, batchSize: 1 },
      onStep: ({ tokens }) => seen.push(tokens),
    })
    expect(seen.toSorted()).toEqual([4, 6, 7])
    const wrong = trainOnExamples({ policy, examples: [{ mesages: [] }] as never })
    await expect(wrong).rejects.toThrow(/example 0, column: got "mesages" .*did you mean "messages"/)
  })

  test('have nothing to answer: reinforcement learning refuses them before its folder is there', async () => {
    for (const given of [rows.messages, rows.text]) {
      const out = join(await temporaryFolder(), 'run')
      const starting = startRun(
        await settingsOf(
          given.map((row) => ({ ...row })),
          { mode: 'rl', 'languageModel.context': '64' },
        ),
        out,
      )
      await expect(starting).rejects.toThrow(/example 0: got .*expected a message to answer/)
      expect(await exists(out)).toBe(false)
    }
  })

  test('in a column that is mistaken are an error that names the nearest', async () => {
    const start = async (given: object, more: Record<string, string>) =>
      startRun(await settingsOf([given], { mode: 'sft', ...more }), join(await temporaryFolder(), 'run'))
    const row = { question: 'a', answer: 'b' }
    await expect(start(row, { 'environment.prompt': 'qestion' })).rejects.toThrow(
      /rows\.jsonl:1, column: got "qestion" .*did you mean "question"/,
    )
    await expect(start(row, { 'environment.prompt': 'question', 'environment.answer': 'anwser' })).rejects.toThrow(
      /column: got "anwser" .*did you mean "answer"/,
    )
    await expect(start({ massages: [] }, {})).rejects.toThrow(
      /rows\.jsonl:1: got the columns massages, .*"massages" for messages/,
    )
  })

  test('of several turns are learned as the model will say them, where the template rewrites earlier ones', async () => {
    const folder = await temporaryFolder()
    await writeQwen3(folder)
    const policy = languageModel({ folder })
    const messages = [user('1?'), assistant('<think>\nab\n</think>\n\nc'), user('2?'), assistant('d')]
    const learned: number[] = []
    const { world } = await trainOnExamples({
      policy,
      ...{ examples: [{ messages }], settings: { updates: 1, batchSize: 1 } },
      onStep: ({ tokens }) => learned.push(tokens),
    })
    const { tokenizer } = world.cohort()
    const said = ['<think>\nab\n</think>\n\nc<|im_end|>', '<think>\n\n</think>\n\nd<|im_end|>']
    expect(learned).toEqual([said.reduce((sum, text) => sum + tokenizer.encode(text, { special: true }).length, 0)])
  })
})
