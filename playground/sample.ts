/** What the editor begins with. */
export const SAMPLE = `import { box, defineEnvironment, discrete, Stream } from 'colonnade'

// A boat on a line. Its motor pushes left, not, or right; it should rest at the buoy.
export default defineEnvironment({
  id: 'Boat-v0',
  settings: {},
  state: () => ({ place: 'f32', speed: 'f32', buoy: 'f32' }),
  make: () => ({
    observationSpace: box({ low: -2, high: 2, shape: [3] }),
    actionSpace: discrete(3),
    maxEpisodeSteps: 100,
    returnThreshold: null,

    // Begins an episode in these lanes.
    reset({ state, observation, lane, episode, random }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]
        random.draw(Stream.reset, lane[n], episode[n], 0)
        state.place[n] = random.uniform(0, -1, 1)
        state.buoy[n] = random.uniform(1, -1, 1)
        state.speed[n] = 0
        observation.set([state.place[n], 0, state.buoy[n]], 3 * n)
      }
    },

    // Steps the lanes from one to another, with the actions that the policy chose.
    step({ state, observation, reward, terminated, action }, from, to) {
      for (let n = from; n < to; n++) {
        state.speed[n] = 0.95 * state.speed[n] + 0.01 * (action[n] - 1)
        state.place[n] = Math.max(-2, Math.min(2, state.place[n] + state.speed[n]))
        const away = Math.abs(state.place[n] - state.buoy[n])
        observation.set([state.place[n], 10 * state.speed[n], state.buoy[n]], 3 * n)
        reward[n] = 1 - Math.min(1, away)
        terminated[n] = 0
      }
    },
  }),
})
`
