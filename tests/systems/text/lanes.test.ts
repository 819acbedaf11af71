/** What a lane's columns hold of a conversation of several turns, and what becomes of replies that are owed. */
import { describe, expect, test, vi } from 'vitest'
import { ConversationPhase } from '../../../src/components/conversation.ts'
import type { TextEnvironmentModel, Turn } from '../../../src/environments/text.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import type { ChatTemplate } from '../../../src/language/templates/chat-template.ts'
import { tick } from '../../../src/systems/tick.ts'
import { cancelReplies } from '../../../src/world/conversations/cohort.ts'
import { digits, localEngineOf, talkUntil, talkWorld } from '../../support/conversations.ts'

const small = { width: 16, heads: 2, layers: 1 }

describe('a conversation of several turns', () => {
  const replies = (model: Partial<TextEnvironmentModel> = {}) =>
    digits({
      maxTurns: 4,
      respond: ({ turn }) => ({ reward: turn, messages: [{ role: 'user', content: String(40 + turn) }] }),
      ...model,
    })

  test('ends where the context is full, with its last place taken and none beyond', async () => {
    const world = await talkWorld({ environment: replies(), policy: languageModel({ ...small, context: 11 }) })
    const rows = await talkUntil(world, 60)
    const lastTurn = ({ lossMask, turn }: (typeof rows)[number]) =>
      lossMask.filter((flag, t) => flag === 1 && turn[t] === turn.at(-1)).length
    for (const row of rows) {
      expect(row.token.length).toBeLessThanOrEqual(11)
      expect(row.turns === 4 || row.stopReason !== 'stop').toBe(true)
      if (row.stopReason === 'length') expect(lastTurn(row)).toBe(6)
      if (row.stopReason === 'stop') expect([row.cutTurns, row.token.at(-1)]).toEqual([0, 11])
      // Cut in the middle of a turn, the context is full; else the reply of two tokens would have filled it.
      if (row.stopReason === 'context') {
        expect(row.cutTurns === 1 ? row.token.length === 11 : row.token.length + 2 >= 11).toBe(true)
        expect(row.cutTurns === 1 || row.droppedReplies === 1).toBe(true)
      }
    }
    const ends = new Set(rows.map(({ stopReason, cutTurns }) => `${stopReason} ${cutTurns}`))
    expect(ends).toEqual(new Set(['length 1', 'context 1', 'context 0', 'stop 0'].filter((end) => ends.has(end))))
    for (const end of ['length 1', 'context 1', 'context 0']) expect(ends).toContain(end)
  })

  test('has a log-probability, a version and the mask of what was said, and none of what was told', async () => {
    const world = await talkWorld({ environment: replies() })
    const rows = await talkUntil(world, 30)
    expect(new Set(rows.map(({ turns }) => turns))).toContain(4)
    for (const { token, lossMask, logprob, version, turn, turns, promptId } of rows) {
      const told = token.filter((_, t) => lossMask[t] === 0)
      expect(told).toEqual([promptId, ...Array.from({ length: turns - 1 }, (_, i) => [4, i]).flat()])
      token.forEach((_, t) => {
        expect(Number.isNaN(logprob[t])).toBe(lossMask[t] === 0)
        expect(version[t]).toBe(lossMask[t] === 1 ? 0 : -1)
      })
      expect(turn.filter((_, t) => lossMask[t] === 0)).toEqual([
        0,
        ...Array.from({ length: turns - 1 }, (_, i) => [i + 1, i + 1]).flat(),
      ])
    }
  })

  test('by messages, is not told the end token that the model said itself', async () => {
    const environment = replies({
      maxTurns: 3,
      maxTokens: 4,
      example: () => ({ prompt: [{ role: 'user', content: 'x' }] }),
      respond: () => ({ reward: 0, messages: [{ role: 'user', content: 'y' }] }),
    })
    const policy = languageModel({ anyText: true, ...small })
    const world = await talkWorld({ environment, policy, cutTurn: 'continue', numLanes: 3 })
    const cohort = world.cohort()
    const [end] = cohort.tokenizer.endIds as [number]
    // The model is made to say the end token where it would say one of every fifth.
    const { decoder } = localEngineOf(cohort)
    const { advance } = decoder
    decoder.advance = (rows, ...rest) => {
      advance.call(decoder, rows, ...rest)
      const { chosen } = decoder.columns
      for (let i = 0; i < rows; i++) if (chosen[i]! % 5 === 0) chosen[i] = end
    }
    const said = { end: 0, other: 0 }
    for (const { token, lossMask, turn } of await talkUntil(world, 24)) {
      for (const number of [1, 2]) {
        const first = turn.indexOf(number)
        const told = cohort.tokenizer.decode(token.filter((_, t) => turn[t] === number && lossMask[t] === 0))
        const isEnded = token[first - 1] === end
        said[isEnded ? 'end' : 'other']++
        expect(told).toBe(`${isEnded ? '' : '<|end|>'}<|user|>y<|end|><|assistant|>`)
      }
    }
    expect(Math.min(said.end, said.other)).toBeGreaterThan(5)
  })
})

describe('a template that rewrites what stands', () => {
  /** Renders the last message alone, behind what begins every text. */
  const chatTemplate: ChatTemplate = {
    name: 'last',
    render(messages, { addGenerationPrompt = false } = {}) {
      const { role, content } = messages.at(-1)!
      return `<|begin|>abc<|${role}|>${content}<|end|>${addGenerationPrompt ? '<|assistant|>' : ''}`
    },
  }

  test('begins a segment: what both begin with stays in the cache, and what was said before is kept', async () => {
    const model = languageModel({ anyText: true, ...small })
    const policy: typeof model = {
      ...model,
      async open(read) {
        const opened = await model.open(read)
        return { ...opened, tokenizer: { ...opened.tokenizer, chatTemplate } }
      },
    }
    const turns: Turn[] = []
    const environment = digits({
      maxTurns: 3,
      maxTokens: 3,
      example: (index) => ({ prompt: [{ role: 'user', content: `q${index}` }] }),
      respond: (turn) => {
        turns.push(turn)
        return { reward: turn.turn + 0.5, messages: [{ role: 'user', content: `q${turn.turn}!${turn.exampleIndex}` }] }
      },
    })
    const sampling = { topK: 9 }
    const world = await talkWorld({ environment, policy, numLanes: 3, cutTurn: 'continue', sampling })
    const cohort = world.cohort()
    const fed: { from: number; prompt: number[]; segment: number; group: number }[] = []
    const { decoder } = localEngineOf(cohort)
    const { feed } = decoder
    decoder.feed = (n, tokens, from = 0) => {
      const { length, segment, group, tokensBefore } = cohort.conversation
      const behind = cohort.segments[n]!.reduce((sum, { token }) => sum + token.length, 0)
      expect([segment[n], tokensBefore[n]]).toEqual([cohort.segments[n]!.length, behind])
      const at = n * cohort.context
      const prompt = [...cohort.conversation.token.subarray(at, at + length[n]!)]
      fed.push({ from, prompt, segment: segment[n]!, group: group[n]! })
      feed.call(decoder, n, tokens, from)
    }
    const rows = await talkUntil(world, 9)
    expect(rows.map(({ segment, turns }) => [segment, turns])).toEqual(rows.map((_, i) => [i % 3, 1]))
    rows.forEach(
      ({ token, lossMask, turn, logprob, version, candidateCount, candidateIds, reward, cutTurns, promptId }, i) => {
        const told = cohort.tokenizer.decode(token.filter((_, t) => lossMask[t] === 0))
        const heard = i % 3 === 0 ? `q${promptId}` : `q${(i % 3) - 1}!${promptId}`
        expect(told).toBe(`<|begin|>abc<|user|>${heard}<|end|><|assistant|>`)
        const prompt = lossMask.indexOf(1)
        expect(lossMask).toEqual(token.map((_, t) => +(t >= prompt)))
        expect(turn).toEqual(token.map(() => i % 3))
        expect(version).toEqual(lossMask.map((flag) => flag - 1))
        expect(logprob.map((value) => +!Number.isNaN(value))).toEqual(lossMask)
        expect(candidateCount).toEqual(lossMask.map((flag) => 9 * flag))
        expect(candidateIds.length).toBe(9 * (token.length - prompt))
        expect(reward).toBe(2.5)
        expect(cutTurns).toBe(cohort.tokenizer.endIds.includes(token.at(-1)!) ? 0 : 1)
      },
    )
    expect(cohort.segments.flat()).toEqual([])
    // Begin, a, b, c, the role and q are the same; then comes another number.
    const later = fed.filter(({ segment }) => segment > 0)
    expect(later.length).toBe(18)
    for (const { from, prompt, segment, group } of later) {
      const { token } = rows[3 * group + segment - 1]!
      expect(from).toBe(token.findIndex((id, t) => id !== prompt[t]))
      expect(from).toBeGreaterThanOrEqual(6)
    }
    expect(turns).toHaveLength(27)
  })
})

describe('a reply that is owed', () => {
  /** An environment that never answers, and what it was given. */
  function silent() {
    const signals: AbortSignal[] = []
    const answers: ((reply: { reward: number }) => void)[] = []
    const environment = digits({
      respond: (_, signal) => {
        signals.push(signal!)
        return new Promise((resolve) => answers.push(resolve))
      },
    })
    return { environment, signals, answers }
  }

  /** Ticks until the environment was asked so often. */
  async function asked(world: Awaited<ReturnType<typeof talkWorld>>, signals: AbortSignal[], count: number) {
    for (let i = 0; i < 50 && signals.length < count; i++) void tick(world)
    expect(signals).toHaveLength(count)
  }

  test('is told that nobody waits any longer, is asked for again, and counts then', async () => {
    const { environment, signals, answers } = silent()
    const world = await talkWorld({ environment, numLanes: 1, replySeconds: 0.05 })
    const cohort = world.cohort()
    cohort.released = 1
    const late = vi.fn(() => 'stop' as const)
    cohort.onLate = late
    await asked(world, signals, 1)
    expect([signals[0]!.aborted, cohort.conversation.phase[0]]).toEqual([false, ConversationPhase.asked])
    cancelReplies(cohort)
    expect(signals[0]!.aborted).toBe(true)
    await new Promise((resolve) => setTimeout(resolve, 100))
    expect(late).not.toHaveBeenCalled() // The deadline went with it.
    Object.assign(cohort, { replyMilliseconds: 60_000 })
    await asked(world, signals, 2)
    expect(signals[1]!.aborted).toBe(false)
    answers[1]!({ reward: 0.25 })
    expect((await talkUntil(world, 1)).map(({ reward }) => reward)).toEqual([0.25])
  })

  test.each(['stop', 'continue'] as const)('is said to be late, and then: %s', async (verdict) => {
    const { environment, signals } = silent()
    const world = await talkWorld({ environment, numLanes: 1, replySeconds: 0.03 })
    const cohort = world.cohort()
    cohort.released = 1
    const told: string[] = []
    const isTold = new Promise<void>((resolve) => {
      cohort.onLate = (message) => {
        told.push(message)
        setTimeout(resolve, 5)
        return verdict
      }
    })
    await asked(world, signals, 1)
    await isTold
    expect(told).toHaveLength(1)
    expect(told[0]).toMatch(/^lane 0: respond of text\/digits, asked at \d{4}-.*Z, has not answered for 0\.03 s$/)
    expect(signals[0]!.aborted).toBe(verdict === 'continue')
    if (verdict === 'stop') expect(cohort.pending[0]!.reply).toBeNull()
    else expect(cohort.pending[0]!.reply).toEqual({ reward: null, error: 'no reply within 0.03 s' })
    cancelReplies(cohort)
  })
})
