/** What is told before Python is asked for a step; `tests/outside/vector-env.test.ts` has the rest. */
import { expect, test } from 'vitest'
import { fromGymnasium } from '../../src/entries/environments.ts'

test.each([
  [{ id: '' }, 'fromGymnasium id: got "", expected a name'],
  [{ id: 'A-v0', timeoutSeconds: 0 }, 'A-v0 timeoutSeconds: got 0, expected seconds, more than 0'],
  [{ id: 'A-v0', onFault: 'ignore' }, 'A-v0 onFault: got "ignore", expected'],
  [{ id: 'A-v0', pyhton: 'python3' }, 'option of fromGymnasium: got "pyhton"'],
])('an option that is wrong is refused', (options, message) => {
  expect(() => fromGymnasium(options as never)).toThrow(message)
})

test('a Python that is not there, or cannot make it, is told when the environment is made', () => {
  const missing = fromGymnasium({ id: 'CartPole-v1', python: 'no-such-python' })
  expect(() => missing()).toThrow('environment CartPole-v1, python no-such-python: got spawnSync no-such-python ENOENT')
  const mute = fromGymnasium({ id: 'CartPole-v1', python: 'false' })
  expect(() => mute()).toThrow('python false: got nothing said, expected a Python with numpy and gymnasium')
  const other = fromGymnasium({ id: 'CartPole-v1', python: 'echo' })
  expect(() => other()).toThrow(/python echo: got .*colonnade\.py .*, expected a Python with numpy and gymnasium/)
})
