import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { inProcess } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

const index = new URL('../../dist/src/index.js', import.meta.url).href

describe('colonnade check', () => {
  test('tells what it asked and what came of it, and exits with 0 where all holds', async () => {
    const words = ['check', 'FrozenLake-v1', 'environment.map=SFF/HFG', 'numLanes=32', 'steps=5', 'seed=4']
    const { code, stdout } = await inProcess(words)
    expect(code).toBe(0)
    expect(stdout).toMatch(/^FrozenLake-v1: 32 lanes, 5 steps each with random actions, \d+ episodes ended\n/)
    expect(stdout).toContain('\nheld    lanes       a lane behaves the same alone and among others\n')
    const { stdout: told } = await inProcess([...words, '--json'])
    expect(JSON.parse(told)).toMatchObject({
      environment: 'FrozenLake-v1',
      numLanes: 32,
      steps: 5,
      seed: 4,
      holds: true,
    })
  })

  test('exits with 1 and says where an environment of one’s own goes wrong', async () => {
    const path = join(await temporaryFolder(), 'coin.mjs')
    await writeFile(
      path,
      `import { box, defineEnvironment, discrete } from '${index}'
      export const coin = defineEnvironment({
        id: 'Coin-v0', module: import.meta.url, settings: {}, state: () => ({}),
        make: () => ({
          observationSpace: box({ low: 0, high: 1 }), actionSpace: discrete(2), maxEpisodeSteps: 10, returnThreshold: null,
          reset({ observation }, rows, count) { for (let i = 0; i < count; i++) observation[rows[i]] = 0 },
          step({ observation, reward, lane }, from, to) {
            for (let n = from; n < to; n++) { observation[n] = lane[n] === 3 ? 2 : 1; reward[n] = 1 }
          },
        }),
      })`,
    )
    const { code, stdout } = await inProcess(['check', path, 'numLanes=8'])
    expect(code).toBe(1)
    expect(stdout).toContain(
      '\n        got 2 in observation[0] of lane 3 (episode 0, step 0) from step, expected 0 to 1, the bounds of its observation space',
    )
    expect(stdout).toContain('\nunasked determinism ')
  })

  test('refuses what is no environment whose lanes step, and keys that are none', async () => {
    expect((await inProcess(['check', 'text/copy'])).stderr).toContain(
      'got text/copy, expected an environment with lanes that step',
    )
    expect((await inProcess(['check', 'CartPole-v1', 'lanes=3'])).stderr).toContain('numLanes')
    expect((await inProcess(['check', 'CartPole-v1', 'ppo.gamma=0.9'])).stderr).toContain('ppo.gamma: got "0.9"')
    expect((await inProcess(['check'])).stderr).toContain('an environment')
  })
})
