import { fromGymnasium } from '../../dist/src/entries/environments.js'

/** CartPole by Gymnasium's own Python, which threads make again. */
export const cart = fromGymnasium({
  id: 'CartPole-v1',
  module: import.meta.url,
  python: process.env.COLONNADE_TEST_PYTHON ?? 'python3',
})
