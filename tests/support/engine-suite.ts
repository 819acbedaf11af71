/** The contract of engines (`src/engines/engine.ts`) as tests. */
import { setTimeout } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { deliverWeights, type Engine, logprobKinds, type TurnEnd, type TurnRequest } from '../../src/engines/engine.ts'

/** An engine with at least 3 slots of at least 24 ids, which draws a turn's tokens by its ids and key only. */
export interface EngineUnderTest {
  readonly engine: Engine
  readonly numSlots: number
  readonly context: number
  readonly vocabularySize: number
  /** How its turns draw tokens. */
  readonly drawing: Pick<TurnRequest, 'sampling' | 'explore' | 'stopStrings'>
  /** Its weights. */
  readonly weights: Float32Array
}

interface Drawn {
  readonly token: number
  readonly logprob: number
  readonly version: number
  readonly candidates: readonly number[] | null
}

/** Tests an engine against the contract. `make` makes an unused one. */
export function engineSuite(name: string, make: () => Promise<EngineUnderTest>): void {
  describe(`the engine ${name}`, () => {
    /** Polls available tokens into lists per slot. */
    const pollInto = (engine: Engine, drawn: Map<number, Drawn[]>, ends: TurnEnd[]): void => {
      const polled = engine.poll()
      for (const block of polled.tokens) {
        for (let i = 0; i < block.count; i++) {
          const [from, to] = [block.candidateOffset[i]!, block.candidateOffset[i + 1]!]
          drawn.set(block.slot[i]!, [
            ...(drawn.get(block.slot[i]!) ?? []),
            {
              token: block.token[i]!,
              logprob: block.logprob[i]!,
              version: block.version[i]!,
              candidates: block.candidate && Array.from(block.candidate.subarray(from, to)),
            },
          ])
        }
      }
      ends.push(...polled.ends)
    }
    /** Waits for an engine that generates by itself, but not forever, since it may have no turn. */
    const arrived = (engine: Engine) => Promise.race([engine.arrival, setTimeout(50)])
    /** Advances until this many turns are over, or at most `most` times. */
    const run = async (engine: Engine, turns: number, most = 1000) => {
      const drawn = new Map<number, Drawn[]>()
      const ends: TurnEnd[] = []
      for (let i = 0; i < most && ends.length < turns; i++) {
        await engine.advance()
        if (engine.arrival !== null) await arrived(engine)
        pollInto(engine, drawn, ends)
      }
      return { drawn, ends }
    }
    const turnOf = ({ drawing }: EngineUnderTest, given: Partial<TurnRequest> = {}): TurnRequest => ({
      ...{ slot: 0, ids: Int32Array.of(1, 2, 3), generated: 0, unchanged: 0, maxTokens: 8, key: [0, 0, 0] },
      ...drawing,
      ...given,
    })
    const tokensOf = (drawn: readonly Drawn[] | undefined) => (drawn ?? []).map(({ token }) => token)
    /** The tokens of a turn that runs alone. */
    const whole = async (given: Partial<TurnRequest> = {}) => {
      const made = await make()
      made.engine.submit(turnOf(made, given))
      const { drawn, ends } = await run(made.engine, 1)
      return { tokens: tokensOf(drawn.get(given.slot ?? 0)), end: ends[0]! }
    }
    /** A key for which a turn has at least 6 tokens. */
    const longTurn = async () => {
      for (let group = 0; group < 50; group++) {
        const key = [group, 1, 0] as const
        const { tokens } = await whole({ key })
        if (tokens.length >= 6) return { key, tokens }
      }
      throw new Error('no turn of 6 tokens in 50')
    }

    test('says of which distribution its log-probabilities are', async () => {
      expect(logprobKinds).toContain((await make()).engine.logprobs)
    })

    test('has nothing to poll before it has a turn', async () => {
      const { engine } = await make()
      await engine.advance()
      expect(engine.poll()).toEqual({ tokens: [], ends: [] })
    })

    test('generates each turn to its end, which it tells once, and no token beyond', async () => {
      const made = await make()
      const { engine, vocabularySize } = made
      for (const slot of [0, 2]) engine.submit(turnOf(made, { slot, maxTokens: 3 + slot, key: [slot, 5, 0] }))
      const { drawn, ends } = await run(engine, 2)
      expect(ends.map(({ slot }) => slot).sort()).toEqual([0, 2])
      for (const { slot, reason } of ends) {
        const tokens = drawn.get(slot)!
        if (reason === 'length') expect(tokens.length).toBe(3 + slot)
        else expect([reason, tokens.length <= 3 + slot]).toEqual(['stop', true])
        for (const { token, logprob, version, candidates } of tokens) {
          expect(Number.isInteger(token) && token >= 0 && token < vocabularySize).toBe(true)
          expect(engine.logprobs === 'none' ? Number.isNaN(logprob) : logprob <= 0).toBe(true)
          expect(version).toBe(engine.version)
          if (candidates === null || candidates.length === 0) continue
          expect(candidates).toContain(token)
          expect(candidates).toEqual(candidates.toSorted((a, b) => a - b))
        }
      }
      const more = await run(engine, 1, 5)
      expect([[...more.drawn], more.ends]).toEqual([[], []])
    })

    test('tells candidate sets if its log-probabilities are of them', async () => {
      const made = await make()
      made.engine.submit(turnOf(made))
      const { drawn } = await run(made.engine, 1)
      for (const { candidates } of drawn.get(0)!)
        expect(candidates !== null).toBe(made.engine.logprobs === 'candidates')
    })

    test('gives a turn the tokens of its ids and its key, whichever slot it takes and whatever is beside it', async () => {
      const { key, tokens } = await longTurn()
      expect((await whole({ key })).tokens).toEqual(tokens)
      const made = await make()
      const { engine } = made
      engine.submit(turnOf(made, { slot: 1, ids: Int32Array.of(3, 1), key: [77, 0, 9] }))
      await engine.advance()
      const before = new Map<number, Drawn[]>()
      const ends: TurnEnd[] = []
      pollInto(engine, before, ends)
      engine.submit(turnOf(made, { slot: 2, key }))
      const { drawn } = await run(engine, 2 - ends.length)
      expect(tokensOf(drawn.get(2))).toEqual(tokens)
      const others = [{ key: [key[0], key[1], 7] as const }, { key: [key[0], 60, 0] as const }]
      const differs = await Promise.all(
        others.map(async (given) => (await whole(given)).tokens.join() !== tokens.join()),
      )
      expect(differs).toContain(true)
    })

    test('breaks a turn off with what it came to, and goes on behind that when it is submitted again', async () => {
      const { key, tokens } = await longTurn()
      const made = await make()
      const { engine } = made
      const ids = [1, 2, 3]
      engine.submit(turnOf(made, { slot: 1, key }))
      const drawn = new Map<number, Drawn[]>()
      const ends: TurnEnd[] = []
      while ((drawn.get(1)?.length ?? 0) < 3) {
        await engine.advance()
        if (engine.arrival !== null) await arrived(engine)
        pollInto(engine, drawn, ends)
      }
      const isOver = ends.length > 0 // An engine may generate whole turns at once.
      engine.abort(1)
      pollInto(engine, drawn, ends)
      expect(ends.map(({ slot, reason }) => [slot, reason === 'aborted'])).toEqual([[1, !isOver]])
      engine.abort(1) // It has no turn.
      const polled = tokensOf(drawn.get(1))
      expect(polled).toEqual(tokens.slice(0, polled.length))
      const came = polled.slice(0, tokens.length - 1)
      const again = { ids: Int32Array.from([...ids, ...came]), generated: came.length, maxTokens: 8 - came.length, key }
      engine.submit(turnOf(made, { slot: 0, ...again }))
      const rest = await run(engine, 1)
      expect([...came, ...tokensOf(rest.drawn.get(0))]).toEqual(tokens)
      expect(rest.ends.map(({ slot }) => slot)).toEqual([0])
    })

    test('takes another turn in a slot whose turn is over, also one that begins alike', async () => {
      const { key, tokens } = await longTurn()
      const made = await make()
      const { engine } = made
      engine.submit(turnOf(made, { ids: Int32Array.of(1, 2, 4, 1), maxTokens: 2 }))
      await run(engine, 1)
      engine.submit(turnOf(made, { unchanged: 2, key }))
      const { drawn } = await run(engine, 1)
      expect(tokensOf(drawn.get(0))).toEqual(tokens)
    })

    test('confirms the version of weights, which tokens carry from then on, those of turns under way too', async () => {
      const { key } = await longTurn()
      const made = await make()
      const { engine, weights } = made
      expect(await engine.setWeights({ version: 3, weights })).toBe(3)
      expect(engine.version).toBe(3)
      engine.submit(turnOf(made, { key }))
      const first = await run(engine, 1, 2)
      if (first.ends.length > 0) engine.submit(turnOf(made, { key }))
      await deliverWeights(engine, { version: 8, weights })
      const rest = await run(engine, 1)
      engine.submit(turnOf(made, { key }))
      const last = await run(engine, 1)
      const versions = [first, rest, last].map(({ drawn }) => [...new Set(drawn.get(0)?.map(({ version }) => version))])
      // An engine that generates by itself may have finished before it had the weights.
      const middle = engine.arrival === null ? [8] : versions[1]!.filter((version) => [3, 8].includes(version)).sort()
      expect(versions).toEqual([[3], middle, [8]])
    })

    test('refuses turns that it cannot take up, and then has no other than before', async () => {
      const made = await make()
      const { engine, numSlots, context } = made
      engine.submit(turnOf(made, { slot: 1 }))
      const wrong: [Partial<TurnRequest>, RegExp][] = [
        [{ slot: 1 }, /slot: got 1, which has a turn, expected a slot without a turn/],
        [{ slot: numSlots }, new RegExp(`slot: got ${numSlots}, expected a whole number from 0 to ${numSlots - 1}`)],
        [{ slot: -1 }, /slot: got -1/],
        [{ ids: new Int32Array(0) }, /ids: got none, expected at least one/],
        [{ generated: 4 }, /generated: got 4, expected a whole number from 0 to 3/],
        [{ unchanged: 4 }, /unchanged: got 4, expected a whole number from 0 to 3/],
        [{ maxTokens: 0 }, /maxTokens: got 0, expected a whole number from 1/],
        [
          { maxTokens: context - 2 },
          new RegExp(`maxTokens: got ${context - 2}, .* from 1 to ${context - 3}, the room`),
        ],
      ]
      for (const [given, message] of wrong) {
        expect(() => engine.submit(turnOf(made, given))).toThrow(message)
        expect(() => engine.submit(turnOf(made, given))).toThrow(InputError)
      }
      const { drawn } = await run(engine, 1)
      expect([...drawn.keys()]).toEqual([1])
    })
  })
}
