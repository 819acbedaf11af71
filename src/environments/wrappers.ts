/** The built-in wrappers. */
import { byId, InputError, show } from '../base/errors.ts'
import { integer, number, optionalNumber } from '../base/settings.ts'
import { type BoxSpace, box, observationType, spaceWidth } from '../base/space.ts'
import type { ObservationColumn } from '../components/observation.ts'
import { type EnvironmentDefinition, STEPS_MAX } from './environment.ts'
import { gridPicture, isGrid } from './picture.ts'
import { sharedCritic } from './shared-critic.ts'
import { defineWrapper, type WrapperFactory } from './wrapper.ts'

/**
 * Replaces the time limit, in steps of the inner environment, or removes it. An inner limit of its own still truncates: that of
 * `actionRepeat`, of environments that store a limited number of actions (`fromObjects`), and of rooms, whose goal reward depends on it.
 * @example wrap(pendulum(), timeLimit({ maxEpisodeSteps: 100 }))
 */
export const timeLimit = defineWrapper({
  id: 'timeLimit',
  module: import.meta.url,
  settings: {
    maxEpisodeSteps: optionalNumber(1000, 'steps after which an episode is truncated; null: never', { min: 1 }),
  },
  make({ maxEpisodeSteps }) {
    if (maxEpisodeSteps === null || (Number.isSafeInteger(maxEpisodeSteps) && maxEpisodeSteps <= STEPS_MAX)) {
      return { maxEpisodeSteps }
    }
    const expected = `a whole number up to ${STEPS_MAX}, or null`
    throw new InputError('timeLimit.maxEpisodeSteps', show(maxEpisodeSteps), expected)
  },
})

/**
 * Stacks the last observations, newest last. An episode starts with copies of its first observation, as in Gymnasium's
 * FrameStackObservation with `padding_type="reset"`. Images (height × width × channels) are stacked along the channels; other shapes get
 * a leading dimension of frames. A grid is drawn from its newest frame.
 * @example wrap(breakout(), frameStack({ frames: 4 }))
 */
export const frameStack = defineWrapper({
  id: 'frameStack',
  module: import.meta.url,
  settings: { frames: integer(4, 'observations to stack', { min: 1, max: 256 }) },
  state: ({ frames }, { observationSpace }) => ({
    newest: [observationType(observationSpace), spaceWidth(observationSpace)],
    frames: [observationType(observationSpace), frames * spaceWidth(observationSpace)],
  }),
  make({ frames }, environment) {
    const { shape, low, high } = environment.observationSpace as BoxSpace
    const width = spaceWidth(environment.observationSpace)
    // A row has `parts` parts; the elements of a part from all frames are adjacent.
    const [parts, size] = shape.length === 3 ? [shape[0]! * shape[1]!, shape[2]!] : [1, width]
    const stacked = (bounds: readonly number[]) =>
      Array.from({ length: parts }, (_, p) =>
        Array.from({ length: frames }, () => bounds.slice(p * size, (p + 1) * size)).flat(),
      ).flat()
    const answersLater = () => refuseLater(environment, 'frameStack')
    const isDrawn = environment.draw === undefined && isGrid(environment.observationSpace)
    /** Writes lane n's observation: its frames, part by part. */
    const write = (observation: ObservationColumn, own: ObservationColumn, n: number) => {
      let to = n * frames * width
      for (let p = 0; p < parts; p++) {
        for (let f = 0; f < frames; f++) {
          let from = (n * frames + f) * width + p * size
          for (const end = from + size; from < end; from++) observation[to++] = own[from]!
        }
      }
    }
    return {
      observationSpace: box({
        low: stacked(low),
        high: stacked(high),
        shape: shape.length === 3 ? [shape[0]!, shape[1]!, frames * size] : [frames, ...shape],
        type: observationType(environment.observationSpace),
      }),
      draw: isDrawn
        ? ({ newest }, n) => gridPicture(environment.observationSpace, newest.subarray(n * width, (n + 1) * width))
        : undefined,
      reset({ own, outer, inner }, rows, count) {
        inner.observation = own.newest
        environment.reset(inner, rows, count)
        for (let i = 0; i < count; i++) {
          const n = rows[i]!
          for (let f = 0; f < frames; f++) {
            const to = (n * frames + f) * width
            for (let k = 0; k < width; k++) own.frames[to + k] = own.newest[n * width + k]!
          }
          write(outer.observation, own.frames, n)
        }
      },
      step({ own, outer, inner }, from, to) {
        inner.observation = own.newest
        inner.answersLater = answersLater
        environment.step(inner, from, to)
        for (let n = from; n < to; n++) {
          const first = n * frames * width
          own.frames.copyWithin(first, first + width, first + frames * width)
          const last = first + (frames - 1) * width
          for (let k = 0; k < width; k++) own.frames[last + k] = own.newest[n * width + k]!
          write(outer.observation, own.frames, n)
        }
      },
    }
  },
})

/**
 * Repeats each action and adds up the rewards, until the episode ends. The inner environment's steps count toward its time limit, so the
 * limit in actions is that limit divided by `times`, rounded up; the last action before truncation is repeated as often as fits.
 * @throws InputError around environments with births and deaths, and around those with action masks, which may forbid the second
 * repetition of an allowed action.
 * @example wrap(mountainCar(), actionRepeat({ times: 4 }))
 */
export const actionRepeat = defineWrapper({
  id: 'actionRepeat',
  module: import.meta.url,
  settings: { times: integer(2, 'environment steps per action', { min: 1 }) },
  state: () => ({ step: 'i32', total: 'f32' }),
  make({ times }, environment) {
    const { id, actionMask = false, population = false, maxEpisodeSteps, numPlayers = 1 } = environment
    if (actionMask || population) {
      const got = `around ${id}, ${actionMask ? 'which masks actions' : 'whose lanes are born and die'}`
      throw new InputError('actionRepeat', got, 'an environment without action masks, births and deaths')
    }
    const limit = maxEpisodeSteps ?? STEPS_MAX
    const answersLater = () => refuseLater(environment, 'actionRepeat')
    return {
      maxEpisodeSteps: maxEpisodeSteps === null ? null : Math.ceil(maxEpisodeSteps / times),
      reset({ own, inner }, rows, count) {
        for (let i = 0; i < count; i++) own.step[rows[i]!] = own.total[rows[i]!] = 0
        inner.step = own.step
        environment.reset(inner, rows, count)
      },
      step({ own, inner }, from, to) {
        const { step, total } = own
        const { reward, terminated, truncated } = inner
        inner.step = step
        inner.answersLater = answersLater
        for (let n = from; n < to; n++) total[n] = 0
        for (let time = 0; time < times; time++) {
          let first = from
          while (first < to) {
            // Lanes of a game stop or continue together.
            let end = first
            while (end < to && terminated[end] === 0 && truncated[end] === 0 && step[end]! < limit) end += numPlayers
            if (end > first) {
              environment.step(inner, first, end)
              for (let n = first; n < end; n++) {
                total[n] = total[n]! + reward[n]!
                step[n] = step[n]! + 1
              }
            }
            first = end + numPlayers
          }
        }
        for (let n = from; n < to; n++) {
          reward[n] = total[n]!
          if (step[n]! >= limit) truncated[n] = 1 // Also if an outer limit is longer, or there is none.
        }
      },
    }
  },
})

/**
 * Rescales actions from `low` … `high` to the environment's own bounds.
 * @throws InputError around an environment with discrete or unbounded actions, and if low is not below high.
 * @example wrap(pendulum(), rescaleAction({ low: -1, high: 1 }))
 */
export const rescaleAction = defineWrapper({
  id: 'rescaleAction',
  module: import.meta.url,
  settings: { low: number(-1, 'minimum of an action'), high: number(1, 'maximum of an action') },
  state: (_, { actionSpace }) => ({ stretched: ['f32', spaceWidth(actionSpace)] }),
  make({ low, high }, environment) {
    const { id, actionSpace } = environment
    if (low >= high) throw new InputError('rescaleAction', `low ${low} and high ${high}`, 'low below high')
    if (actionSpace.kind !== 'box' || ![...actionSpace.low, ...actionSpace.high].every(Number.isFinite)) {
      throw new InputError(`rescaleAction of ${id}, actions`, show(actionSpace), 'a box with finite bounds')
    }
    const { shape, low: lows, high: highs } = actionSpace
    const width = spaceWidth(actionSpace)
    return {
      actionSpace: box({ low, high, shape }),
      reset({ own, inner }, rows, count) {
        for (let i = 0; i < count; i++) own.stretched.fill(0, rows[i]! * width, (rows[i]! + 1) * width)
        environment.reset(inner, rows, count)
      },
      step({ own, outer, inner }, from, to) {
        for (let i = from * width; i < to * width; i++) {
          const least = lows[i % width]!
          own.stretched[i] = least + ((outer.action[i]! - low) / (high - low)) * (highs[i % width]! - least)
        }
        inner.action = own.stretched
        environment.step(inner, from, to)
      },
    }
  },
})

function refuseLater({ id }: EnvironmentDefinition, wrapper: string): never {
  throw new InputError(`environment ${id}`, `a promise, inside ${wrapper}`, 'an immediate answer')
}

export const wrappers = [
  timeLimit,
  frameStack,
  actionRepeat,
  rescaleAction,
  sharedCritic,
] as unknown as readonly WrapperFactory[]

/**
 * Returns the factory of a built-in wrapper. `otherwise` describes, for the error, what the caller accepts besides.
 * @throws InputError with the nearest id.
 */
export function wrapperFactory(id: string, otherwise?: string): WrapperFactory {
  return byId('wrapper', wrappers, id, otherwise)
}
