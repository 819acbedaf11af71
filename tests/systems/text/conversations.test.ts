import { describe, expect, test, vi } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import { takeArena } from '../../../src/components/arena.ts'
import { column } from '../../../src/components/column.ts'
import { ConversationPhase } from '../../../src/components/conversation.ts'
import { createKernels, spansOf } from '../../../src/kernels/bind.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import type { ChatTemplate } from '../../../src/language/templates/chat-template.ts'
import { byteTokenizer } from '../../../src/language/tokenizers/byte-tokenizer.ts'
import { PackedTransformer, packedPlan } from '../../../src/language/transformer/packed.ts'
import { tick } from '../../../src/systems/tick.ts'
import { digits, talkUntil, talkWorld } from '../../support/conversations.ts'

describe('conversations as lanes', () => {
  test('every conversation is there once, by prompt, group and member, each token with its mask, version and logprob', async () => {
    const world = await talkWorld({ groupSize: 3 })
    const all = await talkUntil(world, 12)
    expect(all.map(({ group, member }) => [group, member])).toEqual(
      Array.from({ length: 12 }, (_, i) => [Math.floor(i / 3), i % 3]),
    )
    for (const { token, lossMask, logprob, version, promptId, group, stopReason } of all) {
      expect(new Set([token, lossMask, logprob, version].map(({ length }) => length)).size).toBe(1)
      expect(promptId).toBe(all.find((other) => other.group === group)!.promptId)
      const { prompt } = world.cohort().environment.example(promptId)
      const ids = world.cohort().tokenizer.encode(prompt as string)
      expect(token.slice(0, ids.length)).toEqual(ids)
      expect(lossMask).toEqual(token.map((_, t) => (t < ids.length ? 0 : 1)))
      expect(version).toEqual(token.map((_, t) => (t < ids.length ? -1 : 0)))
      for (let t = ids.length; t < token.length; t++) expect(logprob[t]).toBeLessThan(0)
      expect(stopReason).toBe(token.at(-1) === world.cohort().tokenizer.endIds[0] ? 'stop' : 'length')
    }
  })

  test('a conversation is the same, to the bit, whatever the lanes beside it and whichever takes it', async () => {
    const alone = await talkUntil(await talkWorld({ numLanes: 1, groupSize: 4 }), 16)
    expect(await talkUntil(await talkWorld({ numLanes: 7, groupSize: 4 }), 16)).toEqual(alone)
    expect(await talkUntil(await talkWorld({ numLanes: 16, groupSize: 4 }), 16)).toEqual(alone)
    expect(await talkUntil(await talkWorld({ numLanes: 7, groupSize: 4, seed: 4 }), 16)).not.toEqual(alone)
  })

  test('nothing but the seed decides what is said: the process’s own random numbers are neither set nor drawn', async () => {
    const draw = vi.spyOn(Math, 'random')
    const world = await talkWorld({ groupSize: 2, sampling: { topP: 0.9 } })
    await talkUntil(world, 8)
    expect(draw).not.toHaveBeenCalled()
    draw.mockRestore()
  })

  test('a lane that is done takes the next conversation while others go on: no lane waits for the longest', async () => {
    const world = await talkWorld({ numLanes: 2 })
    const { conversation, trajectories } = world.cohort()
    let overlapped = false
    for (let i = 0; i < 200 && !overlapped; i++) {
      const before = trajectories.count
      tick(world)
      const others = [0, 1].filter((n) => conversation.phase[n] === ConversationPhase.model)
      overlapped = trajectories.count > before && others.length === 1
    }
    expect(overlapped).toBe(true)
  })

  test('the recorded logprob is, to the bit, what evaluating the whole sequence gives', async () => {
    const world = await talkWorld({ sampling: { temperature: 1.3 } })
    const all = await talkUntil(world, 6)
    const { model, weights } = world.cohort()
    const { arena, columns } = takeArena({ weights: column('f32', weights.length), packed: packedPlan(model, 64, 64) })
    columns.weights.set(weights)
    const packed = new PackedTransformer(
      model,
      columns.weights,
      columns.packed,
      createKernels(arena.memory, world.kernelBuild),
    )
    for (const { token, lossMask, logprob } of all) {
      const rows = packed.pack(token, spansOf([0, token.length]), 0, 1)
      const evaluated = packed.evaluate(rows, 1.3).logprob
      token.forEach((_, t) => {
        if (lossMask[t] === 1) expect(evaluated[t - 1]).toBe(logprob[t])
      })
    }
  })

  test('within top-k tokens are drawn from k, which are recorded with them, and the logprob is that of this distribution', async () => {
    const world = await talkWorld({ sampling: { topK: 3 } })
    const all = await talkUntil(world, 6)
    for (const { token, lossMask, logprob, candidateCount, candidateIds } of all) {
      expect(candidateCount).toEqual(lossMask.map((flag) => 3 * flag))
      let from = 0
      token.forEach((id, t) => {
        const candidates = candidateIds.slice(from, from + candidateCount[t]!)
        from += candidateCount[t]!
        if (lossMask[t] === 1) expect(candidates).toContain(id)
      })
      expect(from).toBe(candidateIds.length)
      expect(Math.exp(logprob.at(-1)!)).toBeLessThanOrEqual(1)
    }
    // Fresh weights are nearly uniform: of 3 tokens each has about a third, of all 11 about an eleventh.
    const probabilities = all.flatMap(({ logprob, lossMask }) =>
      logprob.filter((_, t) => lossMask[t] === 1).map(Math.exp),
    )
    const mean = probabilities.reduce((sum, p) => sum + p, 0) / probabilities.length
    expect(mean).toBeGreaterThan(0.3)
  })

  test('a special token that the model chooses is no word of its answer, for rewards or for what is said next', async () => {
    const said: string[] = []
    const histories: string[] = []
    const environment = digits({
      maxTurns: 2,
      respond: ({ completion, messages }) => {
        said.push(completion)
        histories.push(...messages.map(({ content }) => content!))
        return { reward: completion.length, messages: [{ role: 'user', content: '7' }] }
      },
    })
    const world = await talkWorld({ environment })
    const all = await talkUntil(world, 60)
    const { padId } = byteTokenizer({ alphabet: '0123456789' })
    expect(all.some(({ token, lossMask }) => token.some((id, t) => id === padId && lossMask[t] === 1))).toBe(true)
    for (const text of [...said, ...histories]) expect(text).toMatch(/^\d*$/)
    for (const { reward, token, lossMask, turn } of all) {
      const last = turn.at(-1)
      const digitsSaid = token.filter((id, t) => lossMask[t] === 1 && turn[t] === last && id < 10)
      expect(reward).toBe(digitsSaid.length)
    }
  })

  test('an end is not the budget: stop and length are told apart, and what was cut off is not said to have ended', async () => {
    const all = await talkUntil(await talkWorld({ maxTokens: 3 }), 40)
    const ends = all.map(({ stopReason }) => stopReason)
    expect(new Set(ends)).toEqual(new Set(['stop', 'length']))
    for (const { stopReason, lossMask } of all) {
      if (stopReason === 'length') expect(lossMask.reduce((sum, flag) => sum + flag, 0)).toBe(3)
    }
  })

  test('further turns extend the ids: what stands is never tokenized again, and what the environment says is masked', async () => {
    const environment = digits({
      maxTurns: 3,
      respond: ({ turn, messages }) => ({
        reward: turn,
        messages: [{ role: 'user', content: String(messages.length) }],
      }),
    })
    const all = await talkUntil(
      await talkWorld({ environment, policy: languageModel({ context: 32, width: 16, heads: 2 }) }),
      60,
    )
    const longest = all.filter(({ turns }) => turns === 3)
    expect(longest.length).toBeGreaterThan(0)
    for (const { token, lossMask, version, turn, reward } of longest) {
      expect(reward).toBe(2)
      expect(new Set(turn)).toEqual(new Set([0, 1, 2]))
      expect(turn).toEqual([...turn].sort((a, b) => a - b))
      // The environment says 1 (it heard one message) before turn 1 and 3 before turn 2: one masked token each.
      for (const [number, said] of [
        [1, 1],
        [2, 3],
      ] as const) {
        const first = turn.indexOf(number)
        expect([token[first], lossMask[first], version[first]]).toEqual([said, 0, -1])
        expect(lossMask[first + 1]).toBe(1)
      }
    }
  })

  test('a prompt of messages goes by the chat template, and the next turn by its difference, each role token once', async () => {
    const environment = digits({
      maxTurns: 3,
      maxTokens: 4,
      example: () => ({ prompt: [{ role: 'user', content: 'hi' }] }),
      respond: () => ({ reward: 0, messages: [{ role: 'user', content: 'go on' }] }),
    })
    const policy = languageModel({ anyText: true, width: 16, heads: 2, layers: 1 })
    const world = await talkWorld({ environment, policy, stopStrings: ['0', '1', 'a', 'e', ' '] })
    const { tokenizer } = world.cohort()
    const all = await talkUntil(world, 200)
    const several = all.filter(({ turns }) => turns > 1)
    expect(several.length).toBeGreaterThan(0)
    for (const { token, lossMask, turns } of several) {
      const told = tokenizer.decode(token.filter((_, t) => lossMask[t] === 0))
      const expected = `<|begin|><|user|>hi<|end|><|assistant|>${'<|end|><|user|>go on<|end|><|assistant|>'.repeat(turns - 1)}`
      // Where the model said the end token itself, it is not told again.
      expect(told.replaceAll('<|assistant|><|user|>', '<|assistant|><|end|><|user|>')).toBe(expected)
    }
  })

  test('a stop string ends a turn, wherever in tokens it lies, and stands in the completion', async () => {
    const completions: string[] = []
    const environment = digits({
      maxTokens: 30,
      respond: ({ completion, stopReason }) => {
        if (stopReason === 'stop') completions.push(completion)
        return { reward: 0 }
      },
    })
    const world = await talkWorld({ environment, stopStrings: ['3', '55'] })
    const all = await talkUntil(world, 60)
    const stopped = completions.filter((completion) => /3$|55$/.test(completion))
    expect(stopped.length).toBeGreaterThan(20)
    // Special tokens are spelled out for this: one between two letters keeps them apart.
    for (const { token, lossMask } of all) {
      const said = world.cohort().tokenizer.decode(token.filter((_, t) => lossMask[t] === 1))
      expect(said.replace('<|end|>', '').slice(0, -1)).not.toMatch(/3|55/)
    }
  })

  test('conversations stop on success: no further turn where the environment says no more', async () => {
    const environment = digits({ maxTurns: 5, respond: () => ({ reward: 1 }) })
    const all = await talkUntil(await talkWorld({ environment }), 10)
    expect(all.every(({ turns }) => turns === 1)).toBe(true)
  })

  test('a reply that takes time holds up its own lane alone, and the table is as if it had come at once', async () => {
    const reward = (completion: string) => completion.length
    const quick = digits({ respond: ({ completion }) => ({ reward: reward(completion) }) })
    const slow = digits({
      respond: async ({ completion, exampleIndex }) => {
        await new Promise((resolve) => setTimeout(resolve, exampleIndex === 2 ? 30 : 1))
        return { reward: reward(completion) }
      },
    })
    const expected = await talkUntil(await talkWorld({ environment: quick }), 20)
    expect(await talkUntil(await talkWorld({ environment: slow }), 20)).toEqual(expected)
  })
})

describe('what goes wrong in an environment', () => {
  test('is not that a reply is late which comes by itself in the end', async () => {
    const respond = async () => {
      await new Promise((resolve) => setTimeout(resolve, 30))
      return { reward: 0.5 }
    }
    const patient = { ...digits({ respond, maxTurns: 1 }), repliesInTime: true }
    const all = await talkUntil(await talkWorld({ environment: patient, replySeconds: 0.001 }), 4)
    expect(all.map(({ reward }) => reward)).toEqual(all.map(() => 0.5))
  })

  test.each([
    [
      'throws',
      () => {
        throw new Error('no idea')
      },
      'no idea',
    ],
    [
      'throws later',
      async () => {
        throw new Error('no idea later')
      },
      'no idea later',
    ],
    ['says NaN', () => ({ reward: Number.NaN }), 'got reward NaN'],
    ['says Infinity', () => ({ reward: Number.POSITIVE_INFINITY }), 'got reward Infinity'],
    ['says nothing', () => undefined as never, 'got reply undefined, expected an object'],
    ['says null', () => null as never, 'got reply null, expected an object'],
    ['says null later', async () => null as never, 'got reply null, expected an object'],
    ['says a word', () => ({ reward: 'good' as never }), 'got reward good'],
    ['speaks in no messages', () => ({ reward: 1, messages: 'more' as never }), 'got messages "more"'],
    ['says nobody knows what', () => ({ reward: 1, messages: [{ role: 'user' }] as never }), 'expected a list of'],
    [
      'says one message and something else',
      () => ({ reward: 1, messages: [{ role: 'user', content: '1' }, { role: 'user' }] as never }),
      'expected a list of',
    ],
    ['never answers', () => new Promise<never>(() => {}), 'no reply within 0.02 s'],
  ])('a reward that %s is unknown with its reason, and never a number made up instead', async (_, respond, reason) => {
    const all = await talkUntil(
      await talkWorld({ environment: digits({ respond, maxTurns: 2 }), replySeconds: 0.02 }),
      3,
    )
    for (const { reward, error } of all) {
      expect(reward).toBeNull()
      expect(error).toContain(reason)
    }
  })

  test('a prompt that does not fit the context is an error that names the example, before a token is said', async () => {
    const environment = digits({ example: () => ({ prompt: '1'.repeat(64) }) })
    const world = await talkWorld({ environment })
    expect(() => tick(world)).toThrow(/text\/digits, example \d: .*64 tokens.*64/s)
  })

  test('a prompt with characters that the model does not know, and an empty one, are errors', async () => {
    const strange = await talkWorld({ environment: digits({ example: () => ({ prompt: 'x' }) }) })
    expect(() => tick(strange)).toThrow(InputError)
    const empty = await talkWorld({ environment: digits({ example: () => ({ prompt: '' }) }) })
    expect(() => tick(empty)).toThrow(/at least one token/)
  })

  test('an example that is refused is refused again, and its conversation not passed over', async () => {
    const examples = [{ prompt: '1' }, { prompt: '' }, { prompt: '3' }]
    const world = await talkWorld({
      environment: digits({ numExamples: 3, example: (index) => examples[index]! }),
      numLanes: 1,
    })
    const refused = () => talkUntil(world, 3)
    await expect(refused()).rejects.toThrow(/example 1.*at least one token/s)
    await expect(refused()).rejects.toThrow(/example 1.*at least one token/s)
    examples[1] = { prompt: '2' }
    expect((await refused()).map(({ promptId }) => promptId).sort()).toEqual([0, 1, 2])
  })

  test('an example that is none, and an environment without a function, are errors', async () => {
    const none = await talkWorld({ environment: digits({ example: () => undefined as never }) })
    expect(() => tick(none)).toThrow(/text\/digits, example \d.*a prompt/s)
    expect(() => digits({ respond: undefined as never })).toThrow(/respond.*a function/s)
    expect(() => digits({ example: 3 as never })).toThrow(/example.*a function/s)
  })

  test('no example at all is an error when the environment is made, or when it is opened, and not a world that waits', async () => {
    expect(() => digits({ numExamples: 0 })).toThrow(/numExamples.*0/s)
    const example = () => ({ prompt: '1' })
    const environment = digits({ open: async () => ({ numExamples: 0, example }) })
    await expect(talkWorld({ environment })).rejects.toThrow(/text\/digits numExamples.*0/s)
  })

  test('an example without a prompt is an error that names it: no prompt is made up', async () => {
    for (const example of [{}, { prompt: null }, { prompt: 7 }, { answer: '1' }, { prompt: [] }]) {
      const environment = digits({ example: () => example as never })
      const world = await talkWorld({ environment, policy: languageModel({ anyText: true, width: 16, heads: 2 }) })
      expect(() => tick(world)).toThrow(/text\/digits, example \d/)
      expect(() => tick(world)).toThrow(InputError)
    }
  })

  test('a template that fails is an error that names the example and the reason, and never a prompt without it', async () => {
    const policy = languageModel({ anyText: true, width: 16, heads: 2, layers: 1 })
    const chatTemplate: ChatTemplate = {
      name: 'template',
      render() {
        throw new InputError('template', 'two messages of the user', 'roles that alternate')
      },
    }
    const broken: typeof policy = {
      ...policy,
      async open(read) {
        const opened = await policy.open(read)
        return { ...opened, tokenizer: { ...opened.tokenizer, chatTemplate } }
      },
    }
    const environment = digits({ example: () => ({ prompt: [{ role: 'user', content: 'hi' }] }) })
    const world = await talkWorld({ environment, policy: broken })
    expect(() => tick(world)).toThrow(/text\/digits, example \d.*roles that alternate/s)
  })

  test('options out of range are errors', async () => {
    for (const wrong of [{ numLanes: 0 }, { groupSize: 1.5 }, { sampling: { temperature: 0 } }, { maxTokens: -1 }]) {
      await expect(talkWorld(wrong)).rejects.toThrow(InputError)
    }
  })
})

describe('the rewards of turns', () => {
  const worth = [4, 2.5, 0.25]
  const environment = digits({
    maxTurns: 3,
    respond: ({ turn, exampleIndex }) => ({
      reward: turn === 0 && exampleIndex === 2 ? null : worth[turn]!,
      messages: [{ role: 'user', content: '7' }],
    }),
  })

  test.each([
    ['last', (rewards: number[]) => rewards.at(-1)!],
    ['sum', (rewards: number[]) => rewards.reduce((sum, value) => sum + value)],
    ['mean', (rewards: number[]) => rewards.reduce((sum, value) => sum + value) / rewards.length],
  ] as const)('are recorded, and the conversation’s is of them what was declared: %s', async (rewardReduction, of) => {
    const rows = await talkUntil(await talkWorld({ environment, rewardReduction, seed: 5 }), 40)
    for (const { promptId, turns, turnReward, reward, error } of rows) {
      const expected = worth.slice(0, turns)
      if (promptId === 2) expected[0] = Number.NaN
      expect(Array.from(turnReward!)).toEqual(expected)
      const whole = of(expected)
      expect(reward).toBe(Number.isNaN(whole) ? null : whole)
      // Of a reply without a reward it is the environment that says why, or not.
      const isOfTurnBefore = rewardReduction !== 'last' && promptId === 2 && turns > 1
      expect(error).toBe(isOfTurnBefore ? 'the reward of an earlier turn is unknown' : null)
    }
    expect(new Set(rows.map(({ turns }) => turns))).toEqual(new Set([1, 2, 3]))
    expect(rows.some(({ promptId, turns }) => promptId === 2 && turns > 1)).toBe(true)
  })

  test('of an unknown word are an error, before a model is opened', async () => {
    await expect(talkWorld({ rewardReduction: 'total' as never })).rejects.toThrow(/rewardReduction: got "total"/)
  })
})
