import { expect, test } from 'vitest'
import { digits, talkUntil, talkWorld } from '../../support/conversations.ts'

test.each([1, 2, 3])('a conversation that is always replied to has %d turns, and no more', async (maxTurns) => {
  const asked: number[] = []
  const environment = digits({
    maxTurns,
    respond: ({ turn }) => {
      asked.push(turn)
      return { reward: 0, messages: [{ role: 'user', content: '7' }] }
    },
  })
  const conversations = await talkUntil(await talkWorld({ environment, maxTokens: 20 }), 24)
  const told = conversations.map(({ turns }) => turns)
  // One that its budget cuts off, or that fills the context, ends before.
  expect(Math.max(...told)).toBe(maxTurns)
  expect(Math.max(...asked)).toBe(maxTurns - 1)
  expect(conversations.flatMap(({ turn }) => turn).reduce((most, turn) => Math.max(most, turn), 0)).toBe(maxTurns - 1)
})
