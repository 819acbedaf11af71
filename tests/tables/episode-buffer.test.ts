import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { EpisodeBuffer, type EpisodeTurn } from '../../src/tables/episodes/episode-buffer.ts'
import { groupNumbers, type TrajectoryColumns } from '../../src/tables/trajectories/trajectories.ts'
import * as fc from '../support/properties.ts'
import { trajectory } from '../support/trajectories.ts'

function turn(given: Partial<EpisodeTurn> = {}): EpisodeTurn {
  return { observation: [1, 2], action: [3], reward: 1, terminated: true, truncated: false, ...given }
}

/** A trajectory of so many tokens, all of them `token`. */
function run(token: number, length: number) {
  const of = (value: number) => new Array(length).fill(value)
  return trajectory({ token: of(token), lossMask: of(1), logprob: of(-1), version: of(0), turn: of(0), reward: token })
}

function filled(maxEpisodes: number, ...lengths: number[]): EpisodeBuffer {
  const buffer = new EpisodeBuffer({ maxEpisodes })
  for (const [i, length] of lengths.entries()) buffer.addEpisodeFromDict(run(i, length))
  return buffer
}

const tokens = ({ token }: { token: Int32Array }) => [...token]

describe('adding turns', () => {
  test('makes one episode of them: what the model saw is masked, and what stands is there once', () => {
    const buffer = new EpisodeBuffer({ maxEpisodes: 4 })
    buffer.add(turn({ logprob: [-0.5], version: 7, terminated: false, reward: 0.5 }))
    expect([buffer.episodeCount, buffer.length, buffer.openLength, buffer.ready()]).toEqual([0, 0, 3, false])
    buffer.add(turn({ observation: [1, 2, 3, 4], action: [5, 6], logprob: [-1, -2], version: 8, reward: 2 }))
    const { offsets, token, lossMask, logprob, version, turn: turns, reward, stopReason } = buffer.sample()
    expect([[...offsets], [...token], [...lossMask]]).toEqual([
      [0, 6],
      [1, 2, 3, 4, 5, 6],
      [0, 0, 1, 0, 1, 1],
    ])
    expect([[...logprob], [...version], [...turns]]).toEqual([
      [Number.NaN, Number.NaN, -0.5, Number.NaN, -1, -2],
      [-1, -1, 7, -1, 8, 8],
      [0, 0, 0, 1, 1, 1],
    ])
    expect([[...reward], stopReason]).toEqual([[2], ['stop']])
  })

  test('keeps an end and a cut apart', () => {
    const buffer = new EpisodeBuffer({ maxEpisodes: 4 })
    buffer.add(turn({ terminated: false, truncated: true }))
    buffer.add(turn())
    expect(buffer.sample().stopReason).toEqual(['length', 'stop'])
  })

  test('keeps an episode that has not ended over samples, and does not drop it or show it before its end', () => {
    const buffer = new EpisodeBuffer({ maxEpisodes: 4 })
    buffer.add(turn())
    buffer.add(turn({ terminated: false, observation: [9] }))
    expect(tokens(buffer.sample())).toEqual([1, 2, 3])
    buffer.add(turn({ observation: [9, 3, 4], action: [5] }))
    expect(tokens(buffer.sample())).toEqual([1, 2, 3, 9, 3, 4, 5])
    expect(buffer.openLength).toBe(0)
    buffer.add(turn({ observation: [8] }))
    expect(tokens(buffer.sampleLatestSteps(2))).toEqual([8, 3])
  })

  test('makes the reward of an episode unknown where that of a turn is which it is made of, and never 0 instead', () => {
    const known = (rewardReduction: 'last' | 'sum', rewards: readonly (number | null)[]) => {
      const buffer = new EpisodeBuffer({ maxEpisodes: 4, rewardReduction })
      buffer.add(turn({ terminated: false, reward: rewards[0]! }))
      buffer.add(turn({ observation: [1, 2, 3], reward: rewards[1]! }))
      return buffer
    }
    expect([...known('sum', [null, 1]).sample().known]).toEqual([0])
    expect([...known('last', [null, 1]).sample().known]).toEqual([1])
    const buffer = known('last', [1, null])
    expect(buffer.getEpisodeStatistics()).toMatchObject({ reward: null, unknownRewards: 1 })
    expect([...buffer.sample().turnReward]).toEqual([1, Number.NaN])
  })

  test.each([
    ['last', 0.25],
    ['sum', 6.75],
    ['mean', 2.25],
  ] as const)(
    'keeps what each turn was worth, and the reward is of them what was declared: %s',
    (rewardReduction, reward) => {
      const buffer = new EpisodeBuffer({ maxEpisodes: 4, rewardReduction })
      const rewards = [4, 2.5, 0.25]
      for (const [i, each] of rewards.entries()) {
        const observation = Array.from({ length: 2 * i + 1 }, (_, t) => t)
        buffer.add(turn({ observation, action: [2 * i + 1], reward: each, terminated: i === 2 }))
      }
      const sample = buffer.sample()
      expect([[...sample.reward], [...sample.turns], [...sample.turnReward]]).toEqual([[reward], [3], rewards])
      expect(() => new EpisodeBuffer({ maxEpisodes: 4, rewardReduction: 'total' as never })).toThrow(/got "total"/)
    },
  )

  test.each<[string, object, RegExp]>([
    ['a key that nobody knows', { observaton: [1] }, /turn: got "observaton".*did you mean "observation"/],
    ['no reward', { reward: undefined }, /turn, reward: got none/],
    ['done in one flag', { terminated: 1 }, /terminated: got 1, expected true or false/],
    ['both ends at once', { truncated: true }, /got terminated and truncated/],
    ['logprobs where the first turn had none', { logprob: [-1], version: 0 }, /logprob: got some, expected none/],
    ['logprobs without their version', { logprob: [-1] }, /got one of them, expected both or none/],
    [
      'an observation of another episode',
      { observation: [1, 9, 3] },
      /turn 1, observation\[1\]: got id 9, expected id 2/,
    ],
    ['an observation that lacks the end', { observation: [1, 2] }, /observation\[2\]: got its end, expected id 3/],
    ['nothing said', { action: [] }, /action: got no id/],
    ['an id that is none', { action: [0.5] }, /token\[3\]: got 0.5/],
    ['a reward that is NaN', { reward: Number.NaN }, /reward: got NaN/],
  ])('refuses %s, and the episode stays as it was', (_, wrong, message) => {
    const buffer = new EpisodeBuffer({ maxEpisodes: 4 })
    buffer.add(turn({ terminated: false }))
    for (const terminated of [true, false]) {
      const given = { ...turn({ observation: [1, 2, 3], terminated }), ...wrong } as EpisodeTurn
      if (terminated || !('truncated' in wrong)) expect(() => buffer.add(given)).toThrow(message)
    }
    expect([buffer.openLength, buffer.episodeCount]).toEqual([3, 0])
    buffer.add(turn({ observation: [1, 2, 3], action: [4] }))
    expect(tokens(buffer.sample())).toEqual([1, 2, 3, 4])
  })

  test('refuses a turn without logprobs where the first had them, and logprobs of another number', () => {
    const buffer = new EpisodeBuffer({ maxEpisodes: 4 })
    buffer.add(turn({ terminated: false, logprob: [-1], version: 0 }))
    expect(() => buffer.add(turn({ observation: [1, 2, 3] }))).toThrow(/logprob: got none, expected some/)
    const two = { observation: [1, 2, 3], action: [4, 5], version: 0 }
    expect(() => buffer.add(turn({ ...two, logprob: [-1] }))).toThrow(/logprob: got 1 numbers, expected 2/)
  })
})

describe('groups', () => {
  const places = ({ promptId, group, member }: TrajectoryColumns) =>
    [...promptId].map((prompt, i) => [prompt, group[i], member[i]])

  test('of turns are one a prompt: episodes that begin with the same ids', () => {
    const buffer = new EpisodeBuffer({ maxEpisodes: 9 })
    for (const observation of [[1, 2], [1, 3], [1, 2], [12], [1, 2]]) buffer.add(turn({ observation }))
    expect(places(buffer.sample())).toEqual([
      [0, 0, 0],
      [1, 0, 0],
      [0, 0, 1],
      [2, 0, 0],
      [0, 0, 2],
    ])
    // One that was added whole says itself what its group is, and is of another source.
    buffer.addEpisodeFromDict(trajectory())
    expect([...groupNumbers(buffer.sample())]).toEqual([0, 1, 0, 2, 0, 3])
  })

  test('are not counted anew when their first episodes are gone, and numbers of prompts not given again', () => {
    const buffer = new EpisodeBuffer({ maxEpisodes: 2 })
    for (const id of [1, 2, 1, 3, 3, 3, 2, 3]) buffer.add(turn({ observation: [id] }))
    expect(places(buffer.sample())).toEqual([
      [3, 0, 0],
      [2, 0, 3],
    ])
    buffer.clear()
    buffer.add(turn({ observation: [3] }))
    expect(places(buffer.sample())).toEqual([[4, 0, 0]])
  })

  test('are not changed by a turn that is refused', () => {
    const buffer = new EpisodeBuffer({ maxEpisodes: 9 })
    expect(() => buffer.add(turn({ reward: Number.NaN }))).toThrow(InputError)
    buffer.add(turn({ terminated: false }))
    expect(() => buffer.add(turn({ observation: [1, 2, 3], action: [0.5] }))).toThrow(InputError)
    buffer.add(turn({ observation: [1, 2, 3] }))
    expect(places(buffer.sample())).toEqual([[0, 0, 0]])
  })
})

describe('what is kept', () => {
  test('are whole episodes: a segment of one is refused', () => {
    const buffer = filled(4, 2)
    expect(() => buffer.addEpisodeFromDict(trajectory({ segment: 1 }))).toThrow(
      'episode, segment: got 1, expected 0: the buffer counts rows as episodes',
    )
    buffer.addEpisodeFromDict(trajectory({ segment: 0 }))
    expect(buffer.episodeCount).toBe(2)
  })

  test('are the newest episodes, and no more than were asked for', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 6 }),
        fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1 }),
        (max, lengths) => {
          const buffer = filled(max, ...lengths)
          const kept = lengths.map((length, i) => new Array(length).fill(i)).slice(-max)
          expect(tokens(buffer.sample())).toEqual(kept.flat())
          expect([buffer.episodeCount, buffer.length]).toEqual([kept.length, kept.flat().length])
        },
      ),
    )
  })

  test('is forgotten by clear, with the episode that has not ended: nothing is delivered twice', () => {
    const buffer = filled(4, 2, 2)
    buffer.add(turn({ terminated: false }))
    buffer.clear()
    expect([buffer.episodeCount, buffer.length, buffer.openLength]).toEqual([0, 0, 0])
    buffer.add(turn())
    expect(tokens(buffer.sample())).toEqual([1, 2, 3])
  })
})

describe('sampling', () => {
  test('of an empty buffer is an error, and never an empty batch', () => {
    const buffer = new EpisodeBuffer({ maxEpisodes: 4 })
    buffer.add(turn({ terminated: false }))
    for (const sample of [
      () => buffer.sample(),
      () => buffer.sampleEpisodes(1),
      () => buffer.sampleLatestSteps(1),
      () => buffer.sampleSequences(1, 1),
      () => buffer.getEpisodeStatistics(),
    ]) {
      expect(sample).toThrow('buffer: got no finished episode, expected at least one')
    }
  })

  test('of episodes takes the oldest or the newest', () => {
    const buffer = filled(3, 1, 2, 1, 2)
    expect(tokens(buffer.sampleEpisodes(2))).toEqual([1, 1, 2])
    expect(tokens(buffer.sampleEpisodes(2, 'desc'))).toEqual([3, 3, 2])
    expect(buffer.sampleEpisodes(9).reward.length).toBe(3)
    expect(() => buffer.sampleEpisodes(1, 'down' as never)).toThrow(/order: got "down".*asc.*desc/)
    expect(buffer.ready(3) && !buffer.ready(4)).toBe(true)
    expect(buffer.getEpisodeStatistics()).toEqual({
      ...{ episodes: 3, length: { mean: 5 / 3, min: 1, max: 2 }, reward: 2, unknownRewards: 0 },
    })
  })

  test('of the latest steps takes them over the borders of episodes, and none of those that are gone', () => {
    const buffer = filled(2, 3, 2, 3)
    expect(tokens(buffer.sampleLatestSteps(4))).toEqual([1, 2, 2, 2])
    expect(tokens(buffer.sampleLatestSteps(99))).toEqual([1, 1, 2, 2, 2])
  })

  test('of sequences says which steps are there: what was filled up is not taken for data', () => {
    const buffer = filled(9, 3, 2)
    const { batchSize, validMask, token, lossMask } = buffer.sampleSequences(8, 2)
    expect(batchSize).toBe(3)
    expect([...token]).toEqual([0, 0, 0, 0, 1, 1])
    expect([...validMask]).toEqual([1, 1, 1, 0, 1, 1])
    expect([...lossMask]).toEqual([1, 1, 1, 0, 1, 1])
    expect([...buffer.sampleSequences(8, 2, { dropIncomplete: true }).validMask]).toEqual([1, 1, 1, 1])
    expect([...buffer.sampleSequences(1, 2, { recentFirst: true }).token]).toEqual([1, 1])
    expect(() => buffer.sampleSequences(1, 4, { dropIncomplete: true })).toThrow(/seqLen: got 4/)
  })

  test('by numbers that are none is an error', () => {
    const buffer = filled(2, 3)
    for (const n of [0, -1, 0.5, Number.NaN]) {
      expect(() => buffer.sampleEpisodes(n)).toThrow(InputError)
      expect(() => buffer.sampleLatestSteps(n)).toThrow(InputError)
      expect(() => buffer.sampleSequences(n, 1)).toThrow(InputError)
      expect(() => buffer.sampleSequences(1, n)).toThrow(InputError)
      expect(() => new EpisodeBuffer({ maxEpisodes: n })).toThrow(InputError)
    }
  })
})
