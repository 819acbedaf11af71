/** Environments of tables, and Blackjack, beside Gymnasium's. */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Random } from '../../src/base/random.ts'
import { spaceWidth } from '../../src/base/space.ts'
import type { EnvironmentDefinition, Lanes } from '../../src/environments/environment.ts'
import { blackjack } from '../../src/environments/games/blackjack.ts'
import { cliffTransitions, cliffWalking } from '../../src/environments/grids/cliff-walking.ts'
import { frozenLake, frozenLake8x8, lakeTransitions } from '../../src/environments/grids/frozen-lake.ts'
import { taxi, taxiTransitions } from '../../src/environments/grids/taxi.ts'
import { type Transitions, transitionModel } from '../../src/environments/grids/transitions.ts'
import { lanesOf, resetAll } from '../support/lanes.ts'

interface RecordedTable {
  readonly max_episode_steps: number | null
  readonly reward_threshold: number | null
  readonly start: readonly number[]
  readonly action_masks?: readonly (readonly number[])[]
  readonly outcomes: readonly (readonly (readonly [number, number, number, boolean][])[])[]
}

interface RecordedGame {
  readonly player: readonly number[]
  readonly dealer: readonly number[]
  readonly observations: readonly [sum: number, dealer: number, usable: number][]
  readonly actions: readonly number[]
  readonly rewards: readonly number[]
}

// Recorded by tests/golden/record_toy_text.py, which says how.
const recorded: { tables: Record<string, RecordedTable>; games: Record<string, RecordedGame[]> } = JSON.parse(
  readFileSync(new URL('../golden/toy-text.json', import.meta.url), 'utf8'),
)
type State = { at: Uint32Array }

const OWN_MAP = 'SFHFS/FFFFF/HFGFF'
const own = frozenLake({ map: OWN_MAP, successRate: 0.8 })
const digits = { 'Taxi-v3': [5, 5, 5, 4] } as Record<string, number[]>

/** A recording, our table and our environment of it. */
const cases: [string, Transitions, EnvironmentDefinition][] = [
  ['FrozenLake-v1', lakeTransitions('', 'SFFF/FHFH/FFFH/HFFG', 1 / 3), frozenLake()],
  ['FrozenLake-v1, not slippery', lakeTransitions('', 'SFFF/FHFH/FFFH/HFFG', 1), frozenLake({ isSlippery: false })],
  ['FrozenLake-v1, own map', lakeTransitions('', OWN_MAP, 0.8), own],
  ['FrozenLake8x8-v1', lakeTransitions('', frozenLake8x8().parameters.map as string, 1 / 3), frozenLake8x8()],
  [
    'FrozenLake8x8-v1, not slippery',
    lakeTransitions('', frozenLake8x8().parameters.map as string, 1),
    frozenLake8x8({ isSlippery: false }),
  ],
  ['CliffWalking-v1', cliffTransitions(false), cliffWalking()],
  ['CliffWalking-v1, slippery', cliffTransitions(true), cliffWalking({ isSlippery: true })],
  ['Taxi-v3', taxiTransitions(), taxi()],
]

describe.each(cases)('%s', (name, table, environment) => {
  const { outcomes, start, max_episode_steps, reward_threshold } = recorded.tables[name]!
  const [numStates, numActions] = [outcomes.length, outcomes[0]!.length]

  test('has Gymnasium’s whole table of transitions', () => {
    const ours = table.outcomes.map((list) =>
      list.map((each) => [each.probability, each.next, each.reward, each.terminated]),
    )
    expect(ours).toHaveLength(numStates * numActions)
    expect(ours).toEqual(outcomes.flat())
    const starts = start.map((probability, state) =>
      table.starts.includes(state) ? probability * table.starts.length : 0,
    )
    for (const [state, share] of starts.entries()) expect(share).toBeCloseTo(start[state]! > 0 ? 1 : 0, 12)
  })

  test('does what the table says, and shows the state', () => {
    const lanes = lanesOf<State>(environment, numStates)
    const width = spaceWidth(environment.observationSpace)
    const sizes = digits[name] ?? [numStates]
    expect(width).toBe(sizes.reduce((sum, size) => sum + size, 0))
    expect(environment.actionSpace).toEqual({ kind: 'discrete', n: numActions })
    for (let action = 0; action < numActions; action++) {
      lanes.state.at.set(outcomes.map((_, state) => state))
      lanes.action.fill(action)
      lanes.terminated.fill(0)
      lanes.step.fill(action) // Another draw for each.
      environment.step(lanes, 0, numStates)
      for (let state = 0; state < numStates; state++) {
        const found = outcomes[state]![action]!.find(
          ([, next, reward, ends]) =>
            next === lanes.state.at[state] &&
            reward === lanes.reward[state] &&
            Number(ends) === lanes.terminated[state],
        )
        expect(found, `state ${state}, action ${action}`).toBeDefined()
        // The digits by the remainders of the number, which is another way than the environment's table of ones.
        let rest = found![1]
        const seen = sizes.toReversed().map((size) => {
          const digit = rest % size
          rest = Math.floor(rest / size)
          return Array.from({ length: size }, (_, k) => (k === digit ? 1 : 0))
        })
        expect([...lanes.observation.subarray(state * width, (state + 1) * width)]).toEqual(seen.toReversed().flat())
      }
    }
  })

  test('has Gymnasium’s limits and threshold', () => {
    if (max_episode_steps !== null) expect(environment.maxEpisodeSteps).toBe(max_episode_steps)
    // A lake that is not slippery, or of one's own, is solved at another return.
    if (!name.includes(',')) expect(environment.returnThreshold).toBe(reward_threshold)
  })
})

describe('chance', () => {
  /** Counts what comes of an action in a state, over so many lanes. */
  function countsOf(environment: EnvironmentDefinition, state: number, action: number, numLanes: number) {
    const lanes = lanesOf<State>(environment, numLanes)
    lanes.state.at.fill(state)
    lanes.action.fill(action)
    environment.step(lanes, 0, numLanes)
    const counts = new Map<number, number>()
    for (const next of lanes.state.at) counts.set(next, (counts.get(next) ?? 0) + 1)
    return counts
  }

  test('takes each outcome as often as it is probable', () => {
    // From the middle of the top row of the own map down: left 0.1, down 0.8, right 0.1 (a hole).
    const counts = countsOf(own, 1, 1, 8000)
    expect([...counts.keys()].toSorted((a, b) => a - b)).toEqual([0, 2, 6])
    for (const [next, chance] of [
      [0, 0.1],
      [6, 0.8],
      [2, 0.1],
    ] as const) {
      expect(Math.abs(counts.get(next)! - 8000 * chance)).toBeLessThan(5 * Math.sqrt(8000 * chance * (1 - chance)))
    }
    expect([...countsOf(cliffWalking({ isSlippery: true }), 0, 1, 600).keys()].toSorted((a, b) => a - b)).toEqual([
      0, 1, 12,
    ])
  })

  test('begins in each of the starting states as often, and depends on the step, the lane and the episode', () => {
    const lanes = lanesOf<State>(own, 4000)
    resetAll(own, lanes)
    const first = lanes.state.at.filter((at) => at === 0).length
    expect(new Set(lanes.state.at)).toEqual(new Set([0, 4]))
    expect(Math.abs(first - 2000)).toBeLessThan(5 * Math.sqrt(1000))
    const drawn = (change: (lanes: Lanes<State>) => void) => {
      const some = lanesOf<State>(own, 64)
      some.state.at.fill(1)
      some.action.fill(1)
      change(some)
      own.step(some, 0, 64)
      return [...some.state.at]
    }
    const usual = drawn(() => {})
    expect(drawn(({ step }) => step.fill(1))).not.toEqual(usual)
    expect(drawn(({ episode }) => episode.fill(1))).not.toEqual(usual)
    expect(drawn(({ lane }) => lane.reverse())).toEqual(usual.toReversed())
  })
})

test('Taxi’s mask is Gymnasium’s in every state, and is there unless it is declined', () => {
  const masks = recorded.tables['Taxi-v3']!.action_masks!
  expect(taxiTransitions().legal).toEqual(masks.flat().map((byte) => byte === 1))
  const environment = taxi()
  const lanes = lanesOf<State>(environment, 500)
  resetAll(environment, lanes)
  const expectMasks = () =>
    expect([...lanes.actionMask]).toEqual([...lanes.state.at].flatMap((state) => [...masks[state]!]))
  expectMasks()
  environment.step(lanes, 0, 500)
  expectMasks()
  expect(taxi({ actionMask: false }).actionMask).toBe(false)
})

describe('maps of one’s own', () => {
  test.each([
    ['SFF/FG', 'rows of one length'],
    ['SXF/FFG', 'the letters S, F, H and G'],
    ['FFF/FFG', 'and a start S'],
    ['', 'a start S'],
  ])('of %s are refused', (map, expected) => {
    expect(() => frozenLake({ map })).toThrow(expected)
  })

  test('may be 4,096 fields large', () => {
    expect(frozenLake({ map: `S${'F'.repeat(4094)}G` }).observationSpace).toMatchObject({ shape: [4096] })
    expect(() => frozenLake({ map: `S${'F'.repeat(4095)}G` })).toThrow('got 4097 fields, expected at most 4096')
  })

  test('have no threshold, nor has a lake that is not slippery', () => {
    expect(own.returnThreshold).toBeNull()
    expect(frozenLake({ isSlippery: false }).returnThreshold).toBeNull()
    expect(frozenLake8x8({ successRate: 0.5 }).returnThreshold).toBeNull()
  })
})

describe('Blackjack-v1', () => {
  /** Random numbers that deal the given cards, in the middle of what a card takes. */
  class Dealt extends Random {
    #left: number[]
    constructor(cards: readonly number[]) {
      super(0)
      this.#left = [...cards]
    }
    override draw(): void {}
    override uniform(): number {
      const card = this.#left.shift()
      if (card === undefined) throw new Error('more cards than Gymnasium drew')
      return (card - 0.5) / 13
    }
    get left(): number {
      return this.#left.length
    }
  }
  const rules = {
    sab: blackjack(),
    natural: blackjack({ sab: false, natural: true }),
    neither: blackjack({ sab: false }),
  }
  const seenIn = (observation: Float32Array) => {
    const ones = [...observation].flatMap((x, k) => (x === 1 ? [k] : []))
    expect(ones).toHaveLength(3)
    return [ones[0]!, ones[1]! - 32, ones[2]! - 43]
  }

  test.each(Object.entries(rules))(
    'plays Gymnasium’s games (%s) with its cards to the same rewards',
    (name, environment) => {
      const games = recorded.games[name]!
      expect(games.length).toBeGreaterThan(100)
      for (const { player, dealer, observations, actions, rewards } of games) {
        const cards = [...dealer.slice(0, 2), ...player, ...dealer.slice(2)]
        const random = new Dealt(cards)
        const lanes = { ...lanesOf<Record<string, Uint8Array>>(environment, 1), random }
        environment.reset(lanes, Uint32Array.of(0), 1)
        expect(seenIn(lanes.observation)).toEqual(observations[0])
        for (const [t, action] of actions.entries()) {
          lanes.action[0] = action
          environment.step(lanes, 0, 1)
          expect([...seenIn(lanes.observation), lanes.reward[0]]).toEqual([...observations[t + 1]!, rewards[t]])
          expect(lanes.terminated[0]).toBe(t === actions.length - 1 ? 1 : 0)
        }
        expect(random.left).toBe(0)
      }
    },
  )

  test.each([
    // The dealer's two cards, the player's, and those that the dealer draws then; rewards by the rules of each.
    ['two naturals are a draw', [1, 10, 1, 10], { sab: 0, natural: 0, neither: 0 }],
    ['two naturals are a draw, whichever card is hidden', [10, 1, 10, 1], { sab: 0, natural: 0, neither: 0 }],
    ['a natural against 21 of three cards', [5, 6, 1, 10, 10], { sab: 1, natural: 0, neither: 0 }],
    ['a natural against less', [10, 8, 10, 1], { sab: 1, natural: 1.5, neither: 1 }],
    ['a natural against too many', [10, 6, 1, 10, 10], { sab: 1, natural: 1.5, neither: 1 }],
    ['less than a natural', [1, 10, 10, 10], { sab: -1, natural: -1, neither: -1 }],
  ] as const)('%s', (_, cards, rewards) => {
    for (const name of ['sab', 'natural', 'neither'] as const) {
      const random = new Dealt(cards)
      const lanes = { ...lanesOf<Record<string, Uint8Array>>(rules[name], 1), random }
      rules[name].reset(lanes, Uint32Array.of(0), 1)
      lanes.action[0] = 0
      rules[name].step(lanes, 0, 1)
      expect([lanes.reward[0], lanes.terminated[0], random.left], name).toEqual([rewards[name], 1, 0])
    }
  })

  test('deals each card as often: 10 in four of thirteen', () => {
    const lanes = lanesOf<Record<string, Uint8Array>>(rules.sab, 13_000)
    resetAll(rules.sab, lanes)
    for (const column of [lanes.state.shown!, lanes.state.hidden!]) {
      for (let card = 1; card <= 10; card++) {
        const chance = card === 10 ? 4 / 13 : 1 / 13
        const count = column.filter((each) => each === card).length
        expect(Math.abs(count - 13_000 * chance)).toBeLessThan(5 * Math.sqrt(13_000 * chance * (1 - chance)))
      }
    }
  })

  test('returns on average what hitting below 20 is worth by the chances of the cards', () => {
    const chance = (card: number) => (card === 10 ? 4 / 13 : 1 / 13)
    const worth = (sum: number, ace: boolean) => (ace && sum <= 11 ? sum + 10 : sum)
    const dealt = new Map<string, number[]>()
    const dealer = (sum: number, ace: boolean): number[] => {
      const key = `${sum} ${ace}`
      if (dealt.has(key)) return dealt.get(key)!
      const final = new Array<number>(22).fill(0) // By score; 0 is bust.
      const now = worth(sum, ace)
      if (now >= 17) final[now > 21 ? 0 : now] = 1
      else {
        for (let card = 1; card <= 10; card++) {
          for (const [score, p] of dealer(sum + card, ace || card === 1).entries()) final[score]! += chance(card) * p
        }
      }
      dealt.set(key, final)
      return final
    }
    const worths = new Map<string, number>()
    const play = (sum: number, ace: boolean, isPair: boolean, shown: number, hidden: number): number => {
      if (sum > 21) return -1
      const now = worth(sum, ace)
      const key = `${sum} ${ace} ${isPair} ${shown} ${hidden}`
      if (worths.has(key)) return worths.get(key)!
      let value = 0
      if (now < 20) {
        for (let card = 1; card <= 10; card++) {
          value += chance(card) * play(sum + card, ace || card === 1, false, shown, hidden)
        }
      } else {
        const isDealersNatural = shown + hidden === 11 && (shown === 1 || hidden === 1)
        const final = dealer(shown + hidden, shown === 1 || hidden === 1)
        value = final.reduce((total, p, score) => total + p * Math.sign(now - score), 0)
        if (now === 21 && isPair && !isDealersNatural) value = 1
      }
      worths.set(key, value)
      return value
    }
    let expected = 0
    const values = Array.from({ length: 10 }, (_, k) => k + 1)
    for (const a of values)
      for (const b of values)
        for (const c of values)
          for (const d of values) {
            const p = chance(a) * chance(b) * chance(c) * chance(d)
            expected += p * play(a + b, a === 1 || b === 1, true, c, d)
          }
    const numLanes = 10_000
    const lanes = lanesOf<Record<string, Uint8Array>>(rules.sab, numLanes)
    resetAll(rules.sab, lanes)
    const over = new Uint8Array(numLanes)
    let total = 0
    for (let t = 0; over.includes(0); t++) {
      for (let n = 0; n < numLanes; n++) {
        lanes.action[n] = lanes.observation.subarray(n * 45, n * 45 + 32).indexOf(1) < 20 ? 1 : 0
      }
      lanes.step.fill(t)
      rules.sab.step(lanes, 0, numLanes)
      for (let n = 0; n < numLanes; n++) {
        if (over[n] === 1 || lanes.terminated[n] === 0) continue
        over[n] = 1
        total += lanes.reward[n]!
      }
      expect(t).toBeLessThan(22)
    }
    expect(expected).toBeLessThan(-0.2)
    expect(Math.abs(total / numLanes - expected)).toBeLessThan(5 / Math.sqrt(numLanes))
  })
})

test('a table’s digits come to the number of its states', () => {
  const table: Transitions = { numStates: 2, numActions: 1, starts: [0], outcomes: [[], []] }
  expect(() => transitionModel(table, { digits: [3], maxEpisodeSteps: 1, returnThreshold: null })).toThrow('digits')
})
