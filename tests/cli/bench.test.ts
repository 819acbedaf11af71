import { expect, test } from 'vitest'
import { inProcess } from '../support/command.ts'

const FAST = ['numLanes=4', 'seconds=0.01', 'mlp.hidden=4']

test('colonnade bench measures an environment with its wrappers, and tells it as a table or as JSON', async () => {
  const words = ['bench', 'Pendulum-v1', 'wrappers=rescaleAction,actionRepeat', 'actionRepeat.times=3', ...FAST]
  const { code, stdout, stderr } = await inProcess([...words, '--json'])
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const { environment, measured, recommendedNumLanes } = JSON.parse(stdout)
  expect([environment, recommendedNumLanes]).toEqual(['Pendulum-v1', 4])
  expect(measured).toMatchObject([{ numLanes: 4, threads: 1 }])
  const { stdout: table } = await inProcess(words)
  expect(table).toMatch(/^Pendulum-v1, steps a second of all lanes\n.*\n {6}4 {7}1( +[\d,]+){3} /)
  expect(table).toContain('\nnumLanes=4: the fewest')
})

// A wrapper that refuses what it is laid around was laid around it.
test.each([
  [['CartPole-v1', 'wrappers=rescaleAction'], 'rescaleAction of CartPole-v1, actions: got'],
  [['Pendulum-v1', 'wrappers=actionRepeet'], 'did you mean "actionRepeat"'],
  [['Pendulum-v1', 'frameStack.frames=3'], 'key: got "frameStack.frames"'],
  [
    ['Pendulum-v1', 'ppo.gamma=0.9'],
    'ppo.gamma: got "0.9", expected a key of environment, mlp: no other has an effect',
  ],
  [['Pendulum-v1', 'totalSteps=500'], 'key: got "totalSteps", expected one of numLanes, threads, seconds'],
  [['text/copy'], 'got text/copy, expected an environment with lanes that step'],
])('colonnade bench %j is refused', async (words, message) => {
  const { code, stderr } = await inProcess(['bench', ...words])
  expect(code).toBe(1)
  expect(stderr).toContain(message)
})
