/** Environments by their id: built-in ones, and those that a program registers. */
import { expect, test } from 'vitest'
import { createEnvironment, listEnvironments, registerEnvironment } from '../../src/entries/environments.ts'
import { integer } from '../../src/entries/settings.ts'
import { box, defineEnvironment, discrete, environments } from '../../src/index.ts'
import { configureRun } from '../../src/training/run/run.ts'

const define = (id: string) =>
  defineEnvironment({
    id,
    settings: { length: integer(3, 'steps', { min: 1 }) },
    state: () => ({ cell: 'i32' }),
    make: ({ length }) => ({
      observationSpace: box({ low: 0, high: 1 }),
      actionSpace: discrete(2),
      maxEpisodeSteps: length,
      returnThreshold: null,
      reset: ({ observation }) => void observation.fill(0),
      step: ({ observation, reward }, from, to) => {
        observation.fill(0, from, to)
        reward.fill(1, from, to)
      },
    }),
  })

test('what is registered is found by its id, by programs and by runs', async () => {
  const before = listEnvironments()
  expect(before).toEqual(environments.map(({ id }) => id))
  expect(() => createEnvironment('Registered-v0')).toThrow('environment: got "Registered-v0"')
  const factory = define('Registered-v0')
  registerEnvironment(factory)
  registerEnvironment(factory) // Once more is no other one.
  expect(listEnvironments()).toEqual([...before, 'Registered-v0'])
  expect(createEnvironment('Registered-v0 length=7').maxEpisodeSteps).toBe(7)
  const run = await configureRun('Registered-v0' as never, { 'environment.length': '8' })
  expect(run.environment).toMatchObject({ id: 'Registered-v0', parameters: { length: 8 } })
})

test('an environment is made from its id and its settings, as values or as a text', () => {
  expect(createEnvironment('CartPole-v1').parameters).toEqual({ maxEpisodeSteps: 500 })
  expect(createEnvironment(' CartPole-v1  maxEpisodeSteps=20 ').maxEpisodeSteps).toBe(20)
  expect(createEnvironment({ id: 'CartPole-v1', parameters: { maxEpisodeSteps: 30 } }).maxEpisodeSteps).toBe(30)
})

test.each([
  [
    'CartPole-v2',
    'environment: got "CartPole-v2" (did you mean "CartPole-v1"?), expected one of 39, like CartPole-v1, CartPole-P-v1, Acrobot-v1',
  ],
  [
    'CartPole-v1 maxEpisodeStep=2',
    'setting of the CartPole-v1: got "maxEpisodeStep" (did you mean "maxEpisodeSteps"?), expected one of maxEpisodeSteps',
  ],
  ['CartPole-v1 maxEpisodeSteps', 'createEnvironment CartPole-v1: got "maxEpisodeSteps", expected key=value'],
  ['CartPole-v1 maxEpisodeSteps=x', 'CartPole-v1.maxEpisodeSteps: got "x"'],
  ['CartPole-v1 maxEpisodeSteps=2 maxEpisodeSteps=3', 'createEnvironment CartPole-v1: got maxEpisodeSteps twice'],
  [{ id: 'CartPole-v1', settings: {} }, 'option of createEnvironment: got "settings"'],
])('%j is refused', (spec, message) => {
  expect(() => createEnvironment(spec as never)).toThrow(message)
})

test('what is no environment, and an id that another has, is refused', () => {
  expect(() => registerEnvironment({} as never)).toThrow('registerEnvironment: got {}')
  expect(() => registerEnvironment(define('CartPole-v1') as never)).toThrow('got the id CartPole-v1 twice')
})

test('a column or an action that is not declared does not compile', () => {
  const wrong = () =>
    defineEnvironment({
      id: 'Typed-v0',
      settings: { length: integer(3, 'steps') },
      state: () => ({ cell: 'i32', place: ['f32', 2] }),
      make: ({ length }) => ({
        observationSpace: box({ low: 0, high: 1 }),
        actionSpace: discrete(2),
        maxEpisodeSteps: length,
        returnThreshold: null,
        reset({ state }) {
          const cells: Int32Array = state.cell
          const places: Float32Array = state.place
          // @ts-expect-error: no such column.
          state.cel
          // @ts-expect-error: integers, not f32.
          const wrongType: Float32Array = state.cell
          return void [cells, places, wrongType]
        },
        step() {},
      }),
      // @ts-expect-error: no such option.
      setting: {},
    })
  expect(typeof wrong).toBe('function')
})

test('an environment with a limit of its own takes whole numbers of steps that a column has room for', () => {
  const limited = environments.filter(({ settings }) => 'maxEpisodeSteps' in settings)
  expect(limited.length).toBeGreaterThan(10)
  for (const { id } of limited) {
    for (const steps of [0, 1.5, 2 ** 31]) {
      const make = () => createEnvironment({ id, parameters: { maxEpisodeSteps: steps } })
      expect(make, id).toThrow(`${id}.maxEpisodeSteps: got ${steps}, expected`)
    }
  }
})
