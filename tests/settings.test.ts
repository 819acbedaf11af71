import { describe, expect, test } from 'vitest'
import { InputError } from '../src/base/errors.ts'
import {
  boolean,
  choice,
  integer,
  number,
  optionalNumber,
  parseSetting,
  resolveSettings,
  type Setting,
  type SettingValue,
  sizes,
  strings,
  text,
} from '../src/base/settings.ts'
import * as fc from './support/properties.ts'

const declared = {
  gamma: number(0.99, 'discount', { above: 0, max: 1 }),
  numSteps: integer(128, 'steps a rollout', { min: 1 }),
  targetKl: optionalNumber(null, 'stops an update early', { above: 0 }),
  normalize: boolean(true, 'normalize advantages'),
  activation: choice('tanh', ['tanh', 'relu'], 'activation'),
  hidden: sizes([64, 64], 'hidden layers'),
}

describe('a setting', () => {
  // What is accepted, what is not, and how both errors and help name it.
  const table: [string, Setting, unknown[], unknown[], string][] = [
    ['number', number(0, ''), [0, -1.5, 1e300], [Number.NaN, Number.POSITIVE_INFINITY, '1', null, true], 'a number'],
    ['number ≥', number(1, '', { min: 1 }), [1, 2], [0.999], 'a number ≥ 1'],
    ['number > and ≤', declared.gamma, [1e-9, 1], [0, 1.0001, -1], 'a number > 0 and ≤ 1'],
    ['whole', declared.numSteps, [1, 2 ** 40], [0, 1.5, 2 ** 53, '3', null], 'a whole number ≥ 1'],
    ['optional number', declared.targetKl, [null, 0.01], [0, undefined, 'null'], 'a number > 0, or null'],
    ['toggle', declared.normalize, [true, false], [1, 0, 'true', null], 'true or false'],
    ['choice', declared.activation, ['tanh', 'relu'], ['gelu', '', null, 0], 'one of tanh, relu'],
    ['text', text('', ''), ['', 'a b.c', 'null'], [null, 1, ['a']], 'a text'],
    [
      'sizes',
      declared.hidden,
      [[], [1], [64, 32]],
      [[0], [1.5], '64', null, 64, ['64']],
      'a list of whole numbers ≥ 1, like 64,64, at most 1000 of them',
    ],
    [
      'words',
      strings([], ''),
      [[], ['a', 'b c']],
      [[''], [1], 'a', null],
      'texts with commas between them, like csv,tensorboard',
    ],
  ]

  test.each(table)('of kind %s accepts its values and no others', (_, setting, accepted, refused, expected) => {
    for (const value of accepted) expect(setting.accepts(value), `${value}`).toBe(true)
    for (const value of refused) expect(setting.accepts(value), `${value}`).toBe(false)
    expect(setting.expected).toBe(expected)
  })

  test('accepts its own default', () => {
    for (const setting of Object.values(declared) as Setting[]) expect(setting.accepts(setting.default)).toBe(true)
  })
})

describe('resolveSettings', () => {
  const defaults = {
    gamma: 0.99,
    numSteps: 128,
    targetKl: null,
    normalize: true,
    activation: 'tanh',
    hidden: [64, 64],
  } as const

  test('fills in the defaults of what is absent or undefined', () => {
    expect(resolveSettings('ppo', declared)).toEqual(defaults)
    expect(resolveSettings('ppo', declared, { gamma: undefined })).toEqual(defaults)
  })

  test('keeps what was given, null and false and an empty list included', () => {
    const given = { gamma: 0.5, targetKl: null, normalize: false, hidden: [], activation: 'relu' } as const
    expect(resolveSettings('ppo', declared, given)).toEqual({ ...defaults, ...given })
  })

  test('gives every declared key and no other, in the declared order', () => {
    expect(Object.keys(resolveSettings('ppo', declared, { hidden: [3], gamma: 0.1 }))).toEqual(Object.keys(declared))
  })

  test.each([
    ['gamma', 2, 'ppo.gamma: got 2, expected a number > 0 and ≤ 1'],
    ['numSteps', '128', 'ppo.numSteps: got "128", expected a whole number ≥ 1'],
    ['normalize', 1, 'ppo.normalize: got 1, expected true or false'],
    ['activation', 'gelu', 'ppo.activation: got "gelu", expected one of tanh, relu'],
    ['hidden', [0], 'ppo.hidden: got [0], expected a list of whole numbers ≥ 1, like 64,64, at most 1000 of them'],
  ])('refuses a wrong %s', (key, value, message) => {
    const resolve = () => resolveSettings('ppo', declared, { [key]: value } as never)
    expect(resolve).toThrow(InputError)
    expect(resolve).toThrow(message)
  })

  test('names the nearest setting to one that is not declared', () => {
    const resolve = () => resolveSettings('ppo', declared, { numstep: 1 } as never)
    expect(resolve).toThrow(InputError)
    expect(resolve).toThrow(/^ppo setting: got "numstep" \(did you mean "numSteps"\?\), expected one of gamma, .+$/)
  })

  test.each([null, 3, 'gamma=1'])('refuses %j for an object of settings', (given) => {
    expect(() => resolveSettings('ppo', declared, given as never)).toThrow(
      /^ppo: got .+, expected an object of settings$/,
    )
  })
})

describe('parseSetting', () => {
  test.each([
    ['0.5', declared.gamma, 0.5],
    ['yes,ice cream,3', strings([], ''), ['yes', 'ice cream', '3']],
    ['', strings(['a'], ''), []],
    ['1e-3', declared.gamma, 1e-3],
    ['1_000_000', declared.numSteps, 1_000_000],
    ['null', declared.targetKl, null],
    ['0.02', declared.targetKl, 0.02],
    ['true', declared.normalize, true],
    ['false', declared.normalize, false],
    ['relu', declared.activation, 'relu'],
    ['', declared.hidden, []],
    ['32', declared.hidden, [32]],
    ['64,32,1', declared.hidden, [64, 32, 1]],
  ] as [string, Setting, SettingValue][])('reads %j', (text, setting, value) => {
    expect(parseSetting('ppo.x', setting, text)).toEqual(value)
  })

  test.each([
    ['', declared.gamma],
    [' ', declared.gamma],
    ['one', declared.gamma],
    ['1.5', declared.numSteps],
    ['null', declared.numSteps],
    ['Infinity', declared.targetKl],
    ['yes', declared.normalize],
    ['null', declared.activation],
    ['64,', declared.hidden],
    ['64;64', declared.hidden],
  ] as [string, Setting][])('refuses %j and says what it expects', (text, setting) => {
    const parse = () => parseSetting('ppo.x', setting, text)
    expect(parse).toThrow(InputError)
    expect(parse).toThrow(`ppo.x: got ${JSON.stringify(text)}, expected ${setting.expected}`)
  })

  test('reads back every value that a setting accepts, as text', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 1e-12, max: 1, noNaN: true }),
        fc.integer({ min: 1 }),
        fc.array(fc.integer({ min: 1, max: 4096 }), { maxLength: 5 }),
        (gamma, numSteps, hidden) => {
          expect(parseSetting('x', declared.gamma, String(gamma))).toBe(gamma)
          expect(parseSetting('x', declared.numSteps, String(numSteps))).toBe(numSteps)
          expect(parseSetting('x', declared.hidden, hidden.join(','))).toEqual(hidden)
        },
      ),
    )
  })
})
