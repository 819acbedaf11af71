import { describe, expect, test } from 'vitest'
import { describeLoss } from '../src/algorithms/losses/losses.ts'
import { ppo } from '../src/algorithms/on-policy/ppo.ts'
import { algorithmFactory } from '../src/algorithms/registry.ts'
import { rl } from '../src/algorithms/tokens/rl.ts'
import { assert, InputError, nearest, show, unknownWord } from '../src/base/errors.ts'
import { checkSeed } from '../src/base/random.ts'
import { number, parseSetting, resolveSettings } from '../src/base/settings.ts'
import { box, discrete, multiDiscrete } from '../src/base/space.ts'
import { takeArena } from '../src/components/arena.ts'
import { column } from '../src/components/column.ts'
import { fromObjects } from '../src/environments/bridges/from-objects.ts'
import { cartPole } from '../src/environments/classic/cart-pole.ts'
import { pendulum } from '../src/environments/classic/pendulum.ts'
import { defineEnvironment } from '../src/environments/environment.ts'
import { environmentFactory } from '../src/environments/registry.ts'
import { textEnvironmentFactory } from '../src/environments/tasks/registry.ts'
import { defineTextEnvironment } from '../src/environments/text.ts'
import { createKernels } from '../src/kernels/bind.ts'
import { checkSampling } from '../src/language/transformer/sampling.ts'
import { mlp } from '../src/policies/mlp.ts'
import { createTrainer } from '../src/training/loop/trainer.ts'
import * as fc from './support/properties.ts'

test('the message of an InputError is one line that steers no terminal, whatever came', () => {
  const given = 'a\u0000b\u001b[2Jc\u0085d\u2028e\u2029f\u202eg'
  const { message } = new InputError('key', given, 'a name')
  expect(message).toBe('key: got a\\u0000b\\u001b[2Jc\\u0085d\\u2028e\\u2029f\\u202eg, expected a name')
})

describe('InputError', () => {
  test('names the thing, what came and what was expected', () => {
    const cause = new Error('below')
    const error = new InputError('numLanes', '0', 'a whole number ≥ 1', { cause })
    expect(error).toBeInstanceOf(Error)
    expect(error.name).toBe('InputError')
    expect(error.message).toBe('numLanes: got 0, expected a whole number ≥ 1')
    expect([error.subject, error.got, error.expected]).toEqual(['numLanes', '0', 'a whole number ≥ 1'])
    expect(error.cause).toBe(cause)
  })

  const model = {
    observationSpace: box({ low: 0, high: 1 }),
    actionSpace: discrete(2),
    maxEpisodeSteps: 10 as number | null,
    returnThreshold: null,
    reset() {},
    step() {},
  }
  const environment = (part: object, id = 'Test-v0') =>
    defineEnvironment({ id, settings: {}, state: () => ({}), make: () => ({ ...model, ...part }) })

  const conversation = { numExamples: 1, example: () => ({ prompt: 'a' }), respond: () => ({ reward: 1 }) }
  const textEnvironment = (make: unknown) => defineTextEnvironment({ id: 'text/x', settings: {}, make } as never)

  // Every way in which what is public can be misused: [what the error must name, what the caller did].
  const mistakes: [string, () => unknown][] = [
    ['seed', () => checkSeed(-1)],
    ['discrete(n)', () => discrete(0)],
    ['multiDiscrete(sizes)', () => multiDiscrete([])],
    ['box shape', () => box({ low: [], high: [] })],
    ['box high', () => box({ low: [0], high: [1, 2] })],
    ['box element 0', () => box({ low: 1, high: 0 })],
    ['column rows', () => column('f32', -1)],
    ['column width', () => column('f32', 1, 0.5)],
    ['memory', () => takeArena({ big: column('f64', 2 ** 32) })],
    ['ppo', () => resolveSettings('ppo', {}, null as never)],
    ['ppo setting', () => resolveSettings('ppo', { gamma: number(1, '') }, { gama: 1 } as never)],
    ['ppo.gamma', () => resolveSettings('ppo', { gamma: number(1, '') }, { gamma: 'one' } as never)],
    ['gamma', () => parseSetting('gamma', number(1, ''), 'one')],
    ['environment', () => environmentFactory('CartPole-v0')],
    ['environment id', () => environment({}, '')],
    ['Test-v0 observationSpace', () => environment({ observationSpace: discrete(2) })()],
    ['Test-v0 observationSpace', () => environment({ observationSpace: undefined })()],
    ['Test-v0 actionSpace', () => environment({ actionSpace: 2 })()],
    ['Test-v0 reset', () => environment({ reset: undefined })()],
    ['Test-v0 step', () => environment({ step: null })()],
    ['Test-v0 maxEpisodeSteps', () => environment({ maxEpisodeSteps: 0 })()],
    ['CartPole-v1.maxEpisodeSteps', () => cartPole({ maxEpisodeSteps: 0 })],
    ['CartPole-v1 setting', () => cartPole({ gravity: 1 } as never)],
    ['Pendulum-v1.gravity', () => pendulum({ gravity: Number.NaN })],
    ['mlp.hidden', () => mlp({ hidden: [0] })],
    ['mlp observation space', () => mlp().build(discrete(2), discrete(2))],
    ['text environment', () => textEnvironmentFactory(3 as never)],
    ['loss', () => describeLoss(undefined as never)],
    ['settings of gspo', () => describeLoss('gspo', 'paper', 3 as never)],
    ['rl', () => rl(null as never)],
    ['settings of grpo', () => rl({ lossSettings: null as never })],
    ['sampling', () => checkSampling('greedy' as never)],
    ['sampling', () => checkSampling(null as never)],
    ['sampling', () => checkSampling({ temprature: 0.5 } as never)],
    ['text/x settings', () => defineTextEnvironment({ id: 'text/x', make: () => conversation } as never)],
    ['text/x make', () => textEnvironment(undefined)()],
    ['text/x make', () => textEnvironment(() => undefined)()],
    ['text/x make', () => textEnvironment(() => null)()],
    ...(['numExamples', 'maxTurns', 'maxTokens'] as const).flatMap((name) =>
      [0, 1.5, '1'].map((value): [string, () => unknown] => [
        `text/x ${name}`,
        () => textEnvironment(() => ({ ...conversation, [name]: value }))(),
      ]),
    ),
    ['text/x example', () => textEnvironment(() => ({ ...conversation, example: 'a' }))()],
    ['text/x respond', () => textEnvironment(() => ({ ...conversation, respond: null }))()],
    ['text/x together.respond', () => textEnvironment(() => ({ ...conversation, together: null }))()],
    ['text/x together.respond', () => textEnvironment(() => ({ ...conversation, together: { size: 2 } }))()],
    ...[0, 1.5, 'all'].map((size): [string, () => unknown] => [
      'text/x together.size',
      () => textEnvironment(() => ({ ...conversation, together: { size, respond: () => [] } }))(),
    ]),
    [
      'text/x maxTurns',
      () => textEnvironment(() => ({ ...conversation, maxTurns: 2, together: { size: 'group', respond: () => [] } }))(),
    ],
    ['options of fromObjects', () => fromObjects(() => ({}) as never, { id: 'Test-v0' } as never)],
    [
      'fromObjects Test-v0',
      () =>
        fromObjects(
          3 as never,
          {
            ...{ id: 'Test-v0', observationSpace: {}, actionSpace: {}, maxEpisodeSteps: null },
          } as never,
        ),
    ],
    ['seed', () => parseSetting('seed', number(1, ''), 3 as never)],
    ['createTrainer(world, algorithms)', () => createTrainer(Promise.resolve() as never, ppo())],
    ['createTrainer(world, algorithms)', () => createTrainer(Promise.resolve() as never, rl())],
    ['kernels', () => createKernels(new WebAssembly.Memory({ initial: 0 }), 'fast' as never)],
  ]

  test.each(mistakes)('says of %s what came and what was expected', (subject, mistake) => {
    let caught: unknown
    try {
      mistake()
    } catch (error) {
      caught = error
    }
    expect(caught).toBeInstanceOf(InputError)
    const error = caught as InputError
    expect(error.subject).toBe(subject)
    expect(error.got).not.toBe('')
    expect(error.expected).not.toBe('')
    expect(error.message).toBe(`${error.subject}: got ${error.got}, expected ${error.expected}`)
  })

  test('of a wrong environment names the nearest three', () => {
    expect(() => environmentFactory('cartpole')).toThrow(
      /^environment: got "cartpole" \(did you mean "CartPole-v1"\?\), expected one of \d+, like CartPole-v1, [^,]+, [^,]+$/,
    )
    const keys = ['recurrent.hidden', 'recurrent.sharedTrunk', 'ppo.clipCoef']
    for (const [word, meant] of [
      ['recurrent.shared', 'recurrent.sharedTrunk'],
      ['clip', 'ppo.clipCoef'],
      ['recurrent.hiden', 'recurrent.hidden'],
    ] as const) {
      expect(unknownWord('key', word, keys).message).toContain(`"${word}" (did you mean "${meant}"?), expected one of`)
    }
    expect(() => algorithmFactory('x')).toThrow(/^algorithm: got "x", expected one of \d+, like ppo, [^,]+, [^,]+$/)
    expect(() => environmentFactory('xyzzy')).toThrow(
      /^environment: got "xyzzy", expected one of \d+, like [^,]+, [^,]+, [^,]+$/,
    )
    expect(environmentFactory('Pendulum-v1')).toBe(pendulum)
  })
})

describe('assert', () => {
  test('throws where we are wrong, and not as the caller’s mistake', () => {
    expect(() => assert(true, 'fine')).not.toThrow()
    expect(() => assert(false, 'columns overlap')).toThrow('Colonnade has a bug: columns overlap')
    expect(() => assert(false, 'columns overlap')).not.toThrow(InputError)
  })
})

describe('show', () => {
  test.each([
    ['text', '"text"'],
    [1.5, '1.5'],
    [Number.NaN, 'NaN'],
    [Number.NEGATIVE_INFINITY, '-Infinity'],
    [undefined, 'undefined'],
    [null, 'null'],
    [true, 'true'],
    [10n, '10'],
    [[1, 2], '[1,2]'],
    [{ kind: 'discrete', n: 2 }, '{"kind":"discrete","n":2}'],
    [checkSeed, 'function checkSeed'],
  ])('prints %s as %s', (value, text) => {
    expect(show(value)).toBe(text)
  })

  test('cuts at 80 characters', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 200, size: 'max' }), (value) => {
        const full = JSON.stringify(value)
        const shown = show(value)
        if (full.length <= 80) expect(shown).toBe(full)
        else {
          expect(shown).toHaveLength(80)
          expect(shown).toBe(`${full.slice(0, 77)}...`)
        }
      }),
    )
  })
})

describe('nearest', () => {
  /** Levenshtein's distance by its recursive definition. */
  function distance(a: string, b: string): number {
    if (a === '') return b.length
    if (b === '') return a.length
    if (a[0] === b[0]) return distance(a.slice(1), b.slice(1))
    return 1 + Math.min(distance(a.slice(1), b), distance(a, b.slice(1)), distance(a.slice(1), b.slice(1)))
  }

  test.each([
    ['gama', ['lambda', 'gamma', 'epochs'], 'gamma'],
    ['CLIPCOEF', ['clipCoef', 'valueCoef'], 'clipCoef'],
    ['ab', ['ax', 'bb'], 'ax'],
    ['', ['abc', 'a'], 'a'],
  ])('finds for %j among %j the word %j', (word, candidates, expected) => {
    expect(nearest(word, candidates)).toBe(expected)
  })

  test('is undefined without candidates', () => {
    expect(nearest('gamma', [])).toBeUndefined()
  })

  test('is the first of the words with the fewest edits', () => {
    const word = fc.string({ unit: fc.constantFrom('a', 'b', 'C', 'c'), maxLength: 5 })
    fc.assert(
      fc.property(word, fc.array(word, { minLength: 1, maxLength: 6 }), (wanted, candidates) => {
        const distances = candidates.map((candidate) => distance(wanted.toLowerCase(), candidate.toLowerCase()))
        expect(nearest(wanted, candidates)).toBe(candidates[distances.indexOf(Math.min(...distances))])
      }),
    )
  })
})

test('an unknown word among an empty list is told that there is none to choose from', () => {
  const message = 'coin setting: got "x", expected none: there are none to choose from'
  expect(unknownWord('coin setting', 'x', []).message).toBe(message)
})
