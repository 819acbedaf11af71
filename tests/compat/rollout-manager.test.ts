import { describe, expect, test } from 'vitest'
import {
  AsyncRolloutManager,
  generateRolloutBatches,
  type RolloutConfig,
  type SavedRolloutManager,
} from '../../src/compat/rollout-manager.ts'
import { RolloutStarvedError } from '../../src/fleet/admission.ts'
import { VirtualTime } from '../../src/fleet/time.ts'
import { DataBuffer, getSamples } from '../../src/language/datasets/data-buffer.ts'
import { checkRewardNonzeroStd } from '../../src/language/rewards/filters.ts'
import type { RolloutBatch } from '../../src/tables/episodes/rollout-batch.ts'
import * as fc from '../support/properties.ts'

const prompts = ['a', 'b', 'c', 'd', 'e']

/** What a sample looks like that says `response` to a prompt of two tokens. */
const said = (response: string) => ({
  response,
  tokens: [1, 2, ...Array.from(response, (letter) => letter.charCodeAt(0))],
  lossMask: [0, 0, ...Array.from(response, () => 1)],
})

const manager = (config: Partial<RolloutConfig<string>>) =>
  new AsyncRolloutManager(new DataBuffer(prompts, 1), {
    batchSize: 2,
    generateFn: (asked) => asked.map((prompt) => said(prompt)),
    ...config,
  })

const idsOf = ({ samples }: RolloutBatch) => samples.map(({ id }) => id)

/** The ids of what the buffer deals, each as often as a group has members, of groups that `keep` keeps. */
function dealt(numGroups: number, groupSize: number, keep: (group: number) => boolean = () => true): string[] {
  const { samples } = getSamples(prompts, { seed: 1, epochId: 0, sampleOffset: 0 }, numGroups)
  return samples.flatMap(({ epoch, promptId, group }) =>
    keep(group) ? Array.from({ length: groupSize }, (_, member) => `${epoch}-${promptId}-${group}-${member}`) : [],
  )
}

describe('a batch', () => {
  test('has a group of samples a prompt, rewarded, then filtered, ready to be learned from', async () => {
    const seen: number[][] = []
    const good = manager({
      nSamplesPerPrompt: 2,
      generateFn: async (asked) => asked.map((prompt, i) => said(prompt.repeat(i + 1))),
      filterFn: (group) => seen.push(group.map(({ reward }) => reward!)) > 0,
    })
    const batch = await good.generateBatch({ rewardFn: ({ response }) => response.length })
    expect(idsOf(batch)).toEqual(dealt(2, 2))
    expect(batch).toMatchObject({ rewards: [1, 2, 1, 2], responseLengths: [1, 2, 1, 2] })
    expect(batch.lossMasks[1]).toEqual([0, 0, 1, 1])
    expect(batch.samples.map(({ prompt, response }) => response.startsWith(prompt as string))).not.toContain(false)
    expect(seen).toEqual([
      [1, 2],
      [1, 2],
    ])
    expect((await good.generateBatch()).metadata).toMatchObject({ epochId: 0, stepId: 1, numGroups: 2 })
    expect(good.numBatches).toBe(2)
    await good.close()
    await expect(good.generateBatch()).rejects.toThrow(/closed/)
  })

  test('calls the generate function once a group, all at once, with the prompt as often as there are members', async () => {
    const calls: (readonly string[])[] = []
    let most = 0
    let now = 0
    const rollouts = manager({
      batchSize: 3,
      nSamplesPerPrompt: 2,
      generateFn: async (asked) => {
        calls.push(asked)
        most = Math.max(most, ++now)
        await new Promise((resolve) => setTimeout(resolve, 1))
        now--
        return asked.map(said)
      },
    })
    await rollouts.generateBatch()
    expect(calls.map((asked) => asked.length)).toEqual([2, 2, 2])
    expect(calls.every(([first, second]) => first === second)).toBe(true)
    expect(most).toBe(3)
  })

  test('is over-sampled by the factor; what is more than it holds is in the next one, and generated once', async () => {
    let generated = 0
    const rollouts = manager({
      batchSize: 4,
      overSamplingFactor: 1.5,
      generateFn: (asked) => {
        generated += asked.length
        return asked.map(said)
      },
    })
    const first = await rollouts.generateBatch()
    expect([generated, rollouts.numWaiting]).toEqual([6, 2])
    const second = await rollouts.generateBatch()
    expect([...idsOf(first), ...idsOf(second)]).toEqual(dealt(8, 1))
    expect(generated).toBe(9) // Two were there: half as many again as the two that were missing.
    expect(rollouts.drops).toEqual({})
  })

  test('lets a filter drop whole groups for a reason, and takes others in their place', async () => {
    const rollouts = manager({
      nSamplesPerPrompt: 2,
      rewardFn: ({ groupIndex, member }) => (groupIndex % 3 === 0 ? 1 : member),
      filterFn: checkRewardNonzeroStd,
    })
    const batch = await rollouts.generateBatch()
    expect(idsOf(batch)).toEqual(dealt(3, 2, (group) => group % 3 !== 0))
    expect(rollouts.drops).toEqual({ zero_std: 1 })
  })

  test('has a reward that is unknown, with the reason, where the reward function throws', async () => {
    const { rewards, samples } = await manager({
      rewardFn: () => {
        throw new Error('the judge is away')
      },
    }).generateBatch()
    expect(rewards).toEqual([null, null])
    expect(samples[0]!.error).toBe('the judge is away')
  })

  test('comes from a generator without end', async () => {
    const ids: string[] = []
    const buffer = new DataBuffer(prompts, 1)
    for await (const batch of generateRolloutBatches(buffer, {
      batchSize: 3,
      generateFn: (asked) => asked.map(said),
    })) {
      ids.push(...idsOf(batch))
      if (ids.length === 9) break
    }
    expect(ids).toEqual(dealt(9, 1))
    expect([buffer.epochId, buffer.sampleOffset]).toEqual([1, 4])
  })
})

describe('bad input', () => {
  const rejected = (config: Partial<RolloutConfig<string>>) => manager(config).generateBatch()
  type Answer = ReturnType<RolloutConfig<string>['generateFn']>

  test('a generate function that throws, answers with too few, or with something else', async () => {
    const fails = () => {
      throw new Error('no model')
    }
    await expect(rejected({ generateFn: fails })).rejects.toThrow('no model')
    await expect(rejected({ nSamplesPerPrompt: 3, generateFn: () => [said('x')] })).rejects.toThrow(
      'generateFn(prompts): got 1 samples, expected 3, one for each prompt',
    )
    await expect(rejected({ generateFn: () => 'x' as unknown as Answer })).rejects.toThrow(/generateFn.*got "x"/)
  })

  test.each([
    [
      { ...said('x'), lossMask: [1] },
      /lossMask: got 1 elements, expected 3, the number of tokens, including the prompt.s/,
    ],
    [{ ...said('x'), rolloutLogProbs: [-1] }, /rolloutLogProbs: got 1 elements, expected 3/],
    [{ ...said('x'), loss_mask: [0] }, /key: got "loss_mask" \(did you mean "lossMask"\?\), expected /],
    [{ ...said('x'), response: 3 }, /response: got 3, expected a text/],
    [{ ...said('x'), tokens: [] }, /tokens: got \[\], expected a list/],
    [{ ...said('x'), status: 'pending' }, /status: got pending/],
    [null, /got null, expected an object with response, tokens and lossMask/],
  ])('a sample that is none: %j', async (sample, message) => {
    await expect(rejected({ generateFn: (asked) => asked.map(() => sample) as never })).rejects.toThrow(message)
  })

  test('a generate function that hangs', async () => {
    const time = new VirtualTime()
    const signals: AbortSignal[] = []
    const rollouts = manager({
      generateSeconds: 20,
      time,
      generateFn: (_, signal) => {
        signals.push(signal)
        return new Promise(() => {})
      },
    })
    await expect(time.run(() => rollouts.generateBatch())).rejects.toThrow(/member 0 of group 0: got no answer in 20 s/)
    expect(time.now()).toBe(20)
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, true])
  })

  test('a filter that rejects all', async () => {
    const starved = rejected({ filterFn: () => ({ keep: false, reason: 'dull' }), dropsMax: 7 })
    await expect(starved).rejects.toThrow(RolloutStarvedError)
    await expect(starved).rejects.toThrow(/got 8 groups dropped for one update \(8 dull\), expected at most 7/)
    await expect(rejected({ filterFn: () => false })).rejects.toThrow(
      /got 21 groups dropped for one update \(21 filter\)/,
    )
    await expect(rejected({ filterFn: () => 1 as never })).rejects.toThrow(/filterFn: got 1/)
  })

  test('failures that are counted drops, or tried again', async () => {
    const failing = (failed: (groupIndex: number, asked: number) => boolean) => {
      let asked = 0
      const first = new Map<string, number>()
      return (given: readonly string[]) => {
        const group = first.get(given[0]!) ?? first.size
        first.set(given[0]!, group)
        if (failed(group, asked++)) throw new Error('no answer')
        return given.map(said)
      }
    }
    const shrinking = manager({
      failure: { kind: 'shrink', minMembers: 1 },
      generateFn: failing((group) => group === 1),
    })
    expect(idsOf(await shrinking.generateBatch())).toEqual(dealt(3, 1, (group) => group !== 1))
    expect(shrinking.drops).toEqual({ failed: 1 })
    const trying = manager({ failure: { kind: 'retry', retries: 1 }, generateFn: failing((_, asked) => asked === 0) })
    expect(idsOf(await trying.generateBatch())).toEqual(dealt(2, 1))
    expect(trying.drops).toEqual({})
  })

  test('configs and calls that are none', async () => {
    const of = (config: object) => () => manager(config)
    expect(of({ generateFn: undefined })).toThrow(/generateFn: got undefined/)
    expect(of({ batchSize: 0 })).toThrow(/batchSize: got 0/)
    expect(of({ nSamplesPerPrompt: 1.5 })).toThrow(/nSamplesPerPrompt: got 1.5/)
    expect(of({ overSamplingFactor: 0.5 })).toThrow(/overSamplingFactor: got 0.5/)
    expect(of({ generateSeconds: 0 })).toThrow(/generateSeconds: got 0/)
    expect(of({ filterFn: 3 })).toThrow(/filterFn: got 3/)
    expect(of({ batch_size: 3 })).toThrow(/did you mean "batchSize"/)
    expect(() => new AsyncRolloutManager(['a'] as never, { batchSize: 1, generateFn: () => [] })).toThrow(
      /a DataBuffer/,
    )
    const rollouts = manager({})
    const first = rollouts.generateBatch()
    await expect(rollouts.generateBatch()).rejects.toThrow(/a second call/)
    await first
    await expect(rollouts.generateBatch({ reward: 1 } as never)).rejects.toThrow(/did you mean "rewardFn"/)
  })
})

describe('an abort', () => {
  test('reaches the generate function; the next call goes on with what was done', async () => {
    const asked: string[] = []
    let isHanging = true
    const aborted: boolean[] = []
    const rollouts = manager({
      batchSize: 3,
      generateFn: (given, signal) => {
        asked.push(given[0]!)
        if (asked.length === 2 && isHanging) {
          return new Promise((_, reject) => {
            signal.addEventListener('abort', () => {
              aborted.push(true)
              reject(signal.reason)
            })
          })
        }
        return given.map(said)
      },
    })
    const stopped = rollouts.generateBatch()
    await new Promise((resolve) => setTimeout(resolve, 5))
    rollouts.requestAbort()
    isHanging = false
    const again = rollouts.generateBatch()
    await expect(stopped).rejects.toThrow(/abort/)
    expect(idsOf(await again)).toEqual(dealt(3, 1))
    expect([aborted, asked.length]).toEqual([[true], 4]) // Only what was under way is asked for again.
    rollouts.requestAbort()
    expect(idsOf(await rollouts.generateBatch())).toEqual(dealt(6, 1).slice(3))
  })

  test('and a state that was saved let another manager go on, without prompts lost or repeated', async () => {
    const config = { batchSize: 3, nSamplesPerPrompt: 2, overSamplingFactor: 1.5 }
    const first = manager(config)
    const ids = idsOf(await first.generateBatch())
    const state = JSON.parse(JSON.stringify(await first.stateDict())) as SavedRolloutManager
    expect(state.prompts.length).toBe(2)
    await first.close()
    let generated = 0
    const second = manager({
      ...config,
      generateFn: (given) => {
        generated += given.length
        return given.map(said)
      },
    })
    await second.loadStateDict(state)
    const batch = await second.generateBatch()
    expect([...ids, ...idsOf(batch)]).toEqual(dealt(6, 2))
    expect(batch.rolloutLogProbs[0]).toEqual([Number.NaN, Number.NaN, Number.NaN])
    expect(generated).toBe(4)
    const other = new AsyncRolloutManager(new DataBuffer(['z'], 1), { batchSize: 1, generateFn: () => [] })
    await expect(other.loadStateDict(state)).rejects.toThrow(/buffer state/)
  })
})

test('whatever takes how long, fails or is dropped: each group once, whole, and in the order of the prompts', async () => {
  const schedule = fc.record({
    batchSize: fc.integer({ min: 1, max: 4 }),
    nSamplesPerPrompt: fc.integer({ min: 1, max: 3 }),
    overSamplingFactor: fc.constantFrom(1, 1.3, 2, 3),
    maxConcurrent: fc.option(fc.integer({ min: 1, max: 5 }), { nil: undefined }),
    delays: fc.array(fc.nat(20), { minLength: 1, maxLength: 12 }),
    dropped: fc.array(fc.boolean(), { minLength: 1, maxLength: 7 }).filter((list) => list.includes(false)),
    failing: fc.array(fc.boolean(), { minLength: 1, maxLength: 9 }),
    aborts: fc.array(fc.nat(15), { maxLength: 2 }),
    saves: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(schedule, async ({ delays, dropped, failing, saves, maxConcurrent, ...given }) => {
      const { aborts: first, ...sizes } = given
      const aborts = [...first]
      const time = new VirtualTime()
      let calls = 0
      const keep = (group: number) => !dropped[group % dropped.length]
      const config: RolloutConfig<string> = {
        ...sizes,
        ...(maxConcurrent === undefined ? {} : { maxConcurrent }),
        dropsMax: 1000,
        failure: { kind: 'retry', retries: 1000 },
        time,
        generateFn: async (asked, signal) => {
          const call = calls++
          await time.sleep(delays[call % delays.length]!, signal)
          if (failing[call % failing.length] && call % 2 === 0) throw new Error('broken off')
          return asked.map(said)
        },
        filterFn: async ([first]) => {
          await time.sleep(1)
          return keep(first!.groupIndex)
        },
      }
      let rollouts = new AsyncRolloutManager(new DataBuffer(prompts, 1), config)
      const ids: string[] = []
      const numBatches = 4
      for (let batch = 0; batch < numBatches; ) {
        const abortAt = aborts[batch]
        const found = await time.run(async () => {
          const asked = rollouts.generateBatch().catch(() => null)
          const isOver = new AbortController() // What has not been aborted by then is not aborted in the next batch.
          if (abortAt !== undefined && calls < 40) {
            time.sleep(abortAt, isOver.signal).then(
              () => rollouts.requestAbort(),
              () => {},
            )
          }
          const answer = await asked
          await time.sleep(100)
          isOver.abort()
          return answer
        })
        if (found === null) {
          expect(abortAt).toBeDefined()
          aborts[batch] = abortAt! + 30
        } else {
          ids.push(...idsOf(found))
          batch++
        }
        if (!saves) continue
        const state = JSON.parse(JSON.stringify(await rollouts.stateDict())) as SavedRolloutManager
        rollouts = new AsyncRolloutManager(new DataBuffer(prompts, 1), config)
        await rollouts.loadStateDict(state)
      }
      const wanted = numBatches * sizes.batchSize
      const all = dealt(10 * wanted + 10, sizes.nSamplesPerPrompt, keep)
      expect(ids).toEqual(all.slice(0, wanted * sizes.nSamplesPerPrompt))
    }),
    { numRuns: 60 },
  )
})
