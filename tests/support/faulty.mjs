/**
 * A walk over places 0 to 20 that sees its place and the step of its episode, and with `fault` does something that trains wrongly
 * where nobody looks.
 */
import { integer, text } from '../../dist/src/entries/settings.js'
import { box, defineEnvironment, discrete } from '../../dist/src/index.js'

/** The observations that some faults keep, by the lanes that are theirs. */
const kept = new WeakMap()

/** What a step does besides, for lanes `from` to `to`. */
const faults = {
  none() {},
  action: ({ action, step }, from) => {
    if (step[from] === 3) action[from] = 1 - action[from]
  },
  lane: ({ lane }, from) => void lane.fill(99, from, from + 1),
  episode: ({ episode, step }, from) => {
    if (step[from] === 2) episode[from] += 1
  },
  step: ({ step }, from) => void step.fill(0, from, from + 1),
  'other reward': ({ reward }, _, to) => {
    if (to < reward.length) reward[to] = 1
    else reward[0] = 1
  },
  'other state': ({ state }, _, to) => {
    state.place[to < state.place.length ? to : 0] += 1
  },
  'other observation': ({ observation, reward }, _, to) => {
    observation[to < reward.length ? 2 * to : 0] = 3
  },
  'earlier observation': (lanes, from) => {
    if (lanes.step[from] === 3) kept.get(lanes).fill(9, 2 * from, 2 * from + 1)
    kept.set(lanes, lanes.observation)
  },
  'first observation': (lanes, from) => {
    if (!kept.has(lanes)) kept.set(lanes, lanes.observation)
    if (lanes.step[from] === 3) kept.get(lanes).fill(9, 2 * from, 2 * from + 1)
  },
  'late observation': ({ observation }, from) => {
    setTimeout(() => observation.fill(9, 2 * from, 2 * from + 1), 0)
  },
  'observation after return': (lanes, from) => {
    queueMicrotask(() => lanes.observation.fill(9, 2 * from, 2 * from + 1))
  },
}

export const faulty = defineEnvironment({
  id: 'Faulty-v0',
  module: import.meta.url,
  settings: { fault: text('none', 'what goes wrong'), from: integer(0, 'the first thread lane that does it') },
  state: () => ({ place: 'i32' }),
  make: ({ fault, from: first }) => {
    const show = ({ state, observation, step }, n, t) => {
      if (fault === 'short observation') {
        observation[n] = state.place[n]
        return
      }
      if (fault === 'half observation' && step[n] === 5) {
        observation[2 * n] = state.place[n]
        return
      }
      observation[2 * n] = state.place[n]
      observation[2 * n + 1] = t
    }
    return {
      observationSpace: box({ low: 0, high: 40, shape: [2] }),
      actionSpace: discrete(2),
      maxEpisodeSteps: 12,
      returnThreshold: null,
      reset(lanes, rows, count) {
        if (fault === 'reset that does nothing') return
        for (let i = 0; i < count; i++) {
          lanes.state.place[rows[i]] = 10
          show(lanes, rows[i], 0)
        }
        if (fault === 'reset of all') lanes.state.place.fill(10)
        if (fault === 'reset of the reward') lanes.reward.fill(0)
      },
      step(lanes, from, to) {
        for (let n = from; n < to; n++) {
          if (fault === 'a lane left out' && lanes.lane[n] === 5) continue
          lanes.state.place[n] = Math.min(Math.max(lanes.state.place[n] + 2 * lanes.action[n] - 1, 0), 20)
          if (fault === 'observation that is added to') lanes.observation[2 * n] += 1
          else show(lanes, n, lanes.step[n] + 1)
          if (!(fault === 'reward at the goal alone' && lanes.state.place[n] < 20))
            lanes.reward[n] = lanes.state.place[n] / 20
        }
        if (from >= first && Object.hasOwn(faults, fault)) faults[fault](lanes, from, to)
      },
    }
  },
})
