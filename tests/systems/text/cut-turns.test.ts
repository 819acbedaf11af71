/** Turns that their budget or the context cut off: what becomes of the conversation is a choice, and counted. */
import { describe, expect, test } from 'vitest'
import { languageModel } from '../../../src/language/language-model.ts'
import { evaluateText } from '../../../src/training/text/evaluate/evaluate.ts'
import type { CutTurn } from '../../../src/world/conversations/cohort.ts'
import { digits, talkUntil, talkWorld } from '../../support/conversations.ts'

/** Three turns of at most two tokens; the environment always has more to say. */
const talkative = digits({
  maxTurns: 3,
  maxTokens: 2,
  example: (index) => ({ prompt: [{ role: 'user', content: String(index) }] }),
  respond: ({ turn }) => ({ reward: turn, messages: [{ role: 'user', content: '7' }] }),
})

function talk(cutTurn?: CutTurn, context = 64) {
  const policy = languageModel({ width: 16, heads: 2, layers: 1, anyText: true, context })
  return talkWorld({ environment: talkative, policy, ...(cutTurn === undefined ? {} : { cutTurn }) })
}

const END = 257

describe('a turn that its budget cut off', () => {
  test('ends the conversation where nothing else is said, and the reply that nobody heard is counted', async () => {
    const all = await talkUntil(await talk(), 30)
    const cut = all.filter(({ token, lossMask }) => lossMask.at(-1) === 1 && token.at(-1) !== END)
    expect(cut.length).toBeGreaterThan(20)
    for (const row of all) {
      const isCut = cut.includes(row)
      expect([row.stopReason, row.cutTurns, row.droppedReplies]).toEqual([
        isCut ? 'length' : 'stop',
        ...(isCut ? [1, +(row.turns < 3)] : [0, 0]),
      ])
    }
    expect(cut.filter(({ turns }) => turns === 1).length).toBeGreaterThan(10)
  })

  test('is closed by the template, and the conversation goes on, where that is asked for', async () => {
    const all = await talkUntil(await talk('continue'), 30)
    for (const { token, lossMask, turn, turns, cutTurns, droppedReplies, reward } of all) {
      expect([turns, droppedReplies, reward]).toEqual([3, 0, 2])
      let cut = 0
      for (let number = 0; number < 3; number++) {
        const last = token.findLastIndex((_, t) => lossMask[t] === 1 && turn[t] === number)
        if (token[last] === END) continue
        cut++
        // The end of the turn is told, not said: nothing is learned of it.
        if (number < 2) expect([token[last + 1], lossMask[last + 1]]).toEqual([END, 0])
      }
      expect(cutTurns).toBe(cut)
    }
    expect(all.reduce((sum, { cutTurns }) => sum + cutTurns!, 0)).toBeGreaterThan(60)
  })

  test('goes on no further than the context has room, which is counted too', async () => {
    const all = await talkUntil(await talk('continue', 12), 30)
    const full = all.filter(({ stopReason }) => stopReason === 'context')
    expect(full.length).toBeGreaterThan(0)
    for (const { turns, droppedReplies } of full) expect(droppedReplies).toBe(turns < 3 ? 1 : 0)
    expect(full.some(({ droppedReplies }) => droppedReplies === 1)).toBe(true)
  })

  test('is cut alike in an evaluation', async () => {
    const policy = languageModel({ width: 16, heads: 2, layers: 1, anyText: true })
    const options = { environment: talkative, policy, episodes: 8, explore: true }
    expect((await evaluateText({ ...options, cutTurn: 'continue' })).reward!.mean).toBe(2)
    expect((await evaluateText(options)).reward!.mean).toBeLessThan(1)
  })
})

test('what becomes of turns and examples is one of the words for it', async () => {
  await expect(talk('contine' as CutTurn)).rejects.toThrow(/cutTurn: got "contine" .*did you mean "continue"/)
  await expect(talkWorld({ tooLong: 'drop' as never })).rejects.toThrow(
    /tooLong: got "drop", expected one of error, skip, cut/,
  )
})
