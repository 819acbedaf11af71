/** Conversations as the page reads them, and the colors of their tokens. */
import { join } from 'node:path'
import { tableFromArrays } from 'apache-arrow'
import { beforeAll, expect, test } from 'vitest'
import { byteTokenizer } from '../../../src/language/tokenizers/byte-tokenizer.ts'
import { TokenTexts } from '../../../src/language/tokenizers/token-texts.ts'
import { type ArrowTable, readArrow } from '../../../src/tables/read-arrow.ts'
import { Trajectories } from '../../../src/tables/trajectories/trajectories.ts'
import { type TextOrigin, writeTrajectories } from '../../../src/tables/trajectories/trajectory-table.ts'
import { groupOf } from '../../../src/telemetry/dashboard/conversations.ts'
import { tokenColor } from '../../../src/telemetry/dashboard/page/token-colors.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { trajectory } from '../../support/trajectories.ts'

const tokenizer = byteTokenizer()
const texts = new TokenTexts(tokenizer)
const CALL = '<tool_call>{"name":"clock","arguments":{}}</tool_call>'
const origin: TextOrigin = {
  ...{ environment: 'text/own', model: 'languageModel', tokenizer: 'bytes', algorithm: 'grpo', seed: 3 },
  promptOf: () => '"é?"',
  answerOf: () => 'noon',
  decode: (ids) => tokenizer.decode(ids),
  textsOf: (ids) => texts.of(ids),
}

/** A conversation of parts: what the model says of each turn, after what it is told. */
function said(member: number, parts: readonly (readonly [told: string, model: string])[], more: object = {}) {
  const columns = { token: [] as number[], lossMask: [] as number[], turn: [] as number[] }
  for (const [turn, both] of parts.entries()) {
    for (const [isOfModel, text] of both.entries()) {
      for (const id of tokenizer.encode(text)) {
        columns.token.push(id)
        columns.lossMask.push(isOfModel)
        columns.turn.push(turn)
      }
    }
  }
  const { lossMask } = columns
  const logprob = lossMask.map((isOfModel) => (isOfModel === 1 ? -0.123456 : Number.NaN))
  const version = lossMask.map((isOfModel) => isOfModel - 1)
  return trajectory({ ...columns, logprob, version, member, turns: parts.length, turnReward: [], ...more })
}

let table: ArrowTable
beforeAll(async () => {
  const trajectories = new Trajectories()
  const turns = [
    ['é?', `ask ${CALL}${CALL} now`],
    [`12:00 ${CALL}`, 'noon'],
  ] as const
  trajectories.append(said(0, turns, { components: { right: 0.75, 'a/b': 2 } }))
  trajectories.append(said(1, [['é?', 'x'.repeat(2100)]], { reward: null, error: 'no judge' }))
  for (let member = 0; member < 40; member++) trajectories.append(said(member, [['é?', 'a']], { group: 1 }))
  trajectories.setAdvantages(Array.from({ length: 42 }, (_, i) => (i === 1 ? Number.NaN : 2 - i)))
  const path = join(await temporaryFolder(), '1.arrow')
  await writeTrajectories(path, trajectories, origin)
  table = await readArrow(path)
})

test('a group stands side by side, each in turns of what it was told and what it said, with calls of tools', () => {
  const group = groupOf(table, 0)!
  expect(group).toMatchObject({ place: 0, numGroups: 2, group: 0, promptId: 0, answer: 'noon', numConversations: 2 })
  const [first, second] = group.conversations
  expect(first!.components).toEqual({ right: 0.75, 'a/b': 2 })
  expect(second!.components).toEqual({ right: null, 'a/b': null })
  expect(first).toMatchObject({ member: 0, segment: 0, reward: 1, advantage: 2, stopReason: 'stop', completion: null })
  expect(first!.blocks.map(({ turn, isOfModel, texts }) => [turn, isOfModel, texts.join('')])).toEqual([
    [0, false, 'é?'],
    [0, true, `ask ${CALL}${CALL} now`],
    [1, false, `12:00 ${CALL}`],
    [1, true, 'noon'],
  ])
  const [told, asked] = first!.blocks
  expect(told).toMatchObject({ texts: ['', 'é', '?'], logprobs: [null, null, null], lossMask: [0, 0, 0], calls: [] })
  expect([asked!.logprobs[0], asked!.lossMask[0]]).toEqual([-0.1235, 1])
  expect(first!.blocks[2]!.calls).toEqual([]) // It was told of a call, and made none.
  const calls = asked!.calls.map(({ from, to, said }) => [asked!.texts.slice(from, to).join(''), said])
  expect(calls).toEqual([
    [CALL, 'calls clock'],
    [CALL, 'calls clock'],
  ])
  expect(second).toMatchObject({ reward: null, advantage: null, error: 'no judge', numTokens: 2103 })
  expect(second!.blocks.reduce((sum, { texts }) => sum + texts.length, 0)).toBe(2000)
})

test('calls as Mistral and Llama write them are found, and those that are malformed', async () => {
  const callsOf = async (text: string) => {
    const trajectories = new Trajectories()
    trajectories.append(said(0, [['', text]]))
    const path = join(await temporaryFolder(), '1.arrow')
    await writeTrajectories(path, trajectories, origin)
    const [block] = groupOf(await readArrow(path), 0)!.conversations[0]!.blocks
    return block!.calls.map(({ from, to, said }) => [block!.texts.slice(from, to).join(''), said])
  }
  const list = '[TOOL_CALLS] [{"name": "clock", "arguments": {}}]'
  expect(await callsOf(`so ${list}`)).toEqual([[list, 'calls clock']])
  expect(await callsOf('{"name": "clock"')).toEqual([
    ['{"name": "clock"', 'malformed call: a call that is no JSON object'],
  ])
  expect(await callsOf('<tool_call>é')).toEqual([['<tool_call>é', 'malformed call: a call without </tool_call>']])
  expect(await callsOf('no call')).toEqual([])
})

test('of many conversations the first are shown; there is no group beyond the last', () => {
  const group = groupOf(table, 1)!
  expect([group.place, group.group, group.numConversations, group.conversations.length]).toEqual([1, 1, 40, 32])
  expect(groupOf(table, 2)).toBeNull()
})

test('a file that does not say what each token is has the completion; what is no conversation is refused', () => {
  const columns = table.schema.fields.map(({ name }) => name).filter((name) => name !== 'tokenTexts')
  const [first] = groupOf(table.select(columns) as ArrowTable, 0)!.conversations
  expect(first).toMatchObject({ blocks: [], completion: `ask ${CALL}${CALL} now12:00 ${CALL}noon` })
  expect(() => groupOf(tableFromArrays({ reward: [1] }) as never, 0)).toThrow(
    'columns: got no source, expected a table of conversations',
  )
})

test('colors are strong where tokens are improbable, or make for an advantage; what is not learned from has none', () => {
  const facts = { logprob: -2.5, isLearned: true, advantage: -1 }
  expect(tokenColor('log-probability', facts, 2)).toBe('rgba(213, 94, 0, 0.25)')
  expect(tokenColor('log-probability', { ...facts, logprob: -50 }, 2)).toBe('rgba(213, 94, 0, 0.5)')
  expect(tokenColor('log-probability', { ...facts, logprob: 0 }, 2)).toBe('')
  expect(tokenColor('log-probability', { ...facts, logprob: null }, 2)).toBe('')
  expect(tokenColor('advantage', facts, 2)).toBe('rgba(213, 94, 0, 0.25)')
  expect(tokenColor('advantage', { ...facts, advantage: 2 }, 2)).toBe('rgba(47, 127, 184, 0.5)')
  for (const none of [{ advantage: null }, { isLearned: false }, { advantage: 0 }])
    expect(tokenColor('advantage', { ...facts, ...none }, 2)).toBe('')
  expect(tokenColor('advantage', { ...facts, advantage: 0 }, 0)).toBe('')
  expect(tokenColor('mask', facts, 2)).toBe('rgba(47, 127, 184, 0.3)')
  expect(tokenColor('mask', { ...facts, isLearned: false }, 2)).toBe('')
})
