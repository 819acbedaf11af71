/** Minari itself reads our datasets. Asked by `npm run test:minari` alone. */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { readEpisodes, writeMinari } from '../../src/entries/data.ts'
import { cartPole, mlp, recordEpisodes } from '../../src/index.ts'
import { MAIN, skipLoudly, start } from '../support/command.ts'
import { attempt, findInstalled, findPython, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const SCRIPT = `
import json, minari
dataset = minari.load_dataset('cartpole-test-v0')
episodes = list(dataset.iterate_episodes())
print(json.dumps({
  'episodes': int(dataset.total_episodes), 'steps': int(dataset.total_steps), 'actions': str(dataset.action_space),
  'within': all(dataset.observation_space.contains(seen) for each in episodes for seen in each.observations),
  'shapes': [[list(each.observations.shape), len(each.actions), len(each.rewards)] for each in episodes],
  'types': [str(each) for each in (episodes[0].observations.dtype, episodes[0].actions.dtype, episodes[0].rewards.dtype, episodes[0].truncations.dtype)],
  'returns': [float(each.rewards.sum()) for each in episodes],
  'sampled': len(dataset.sample_episodes(2)),
}))
`

const COLLECT = `
import gymnasium, json, minari
environment = minari.DataCollector(gymnasium.make('CartPole-v1', max_episode_steps=15), data_format='arrow')
for seed in range(4):
    environment.reset(seed=seed)
    environment.action_space.seed(seed)
    over = False
    while not over:
        *_, terminated, truncated, _ = environment.step(environment.action_space.sample())
        over = terminated or truncated
dataset = environment.create_dataset('cartpole/random-v0', algorithm_name='random')
episodes = list(dataset.iterate_episodes())
print(json.dumps({
  'actions': [int(action) for each in episodes for action in each.actions],
  'observations': [float(x) for each in episodes for seen in each.observations[:-1] for x in seen],
  'terminated': int(sum(each.terminations[-1] for each in episodes)),
}))
`

test(
  'lists the episodes with their types and counts',
  async (context) => {
    if (import.meta.env.MODE !== 'minari') skipLoudly(context, 'Minari (npm run test:minari asks it)')
    const found = await findPython(['minari[arrow]==0.5.4', 'pillow'], 'minari, pyarrow, PIL')
    if ('why' in found) return skipLoudly(context, found.why)
    const environment = cartPole({ maxEpisodeSteps: 30 })
    const policy = mlp({ hidden: [4] })
    const weights = new Float32Array(policy.build(environment.observationSpace, environment.actionSpace).numParameters)
    const table = await recordEpisodes({ environment, policy, weights, episodes: 4, seed: 5 })
    const folder = await temporaryFolder()
    const { steps } = await writeMinari(join(folder, 'cartpole-test-v0'), table, environment)
    process.env.MINARI_DATASETS_PATH = folder
    const { code, stdout, stderr } = await attempt(found.python, ['-c', SCRIPT])
    expect(code, stderr).toBe(0)
    const read = JSON.parse(stdout)
    expect(read).toMatchObject({ episodes: 4, steps, actions: 'Discrete(2)', within: true, sampled: 2 })
    expect(read.types).toEqual(['float32', 'int64', 'float64', 'bool'])
    for (const [i, [seen, actions, rewards]] of read.shapes.entries()) {
      expect([seen, actions]).toEqual([[rewards + 1, 4], rewards])
      expect(read.returns[i]).toBe(rewards)
    }
  },
  PYTHON_MS,
)

test(
  "a few lines of torch clone a policy from our dataset, which plays Gymnasium's CartPole",
  async (context) => {
    if (import.meta.env.MODE !== 'minari') skipLoudly(context, 'cloning by torch (npm run test:minari asks it)')
    const found = await findInstalled('minari, pyarrow, gymnasium, torch')
    if ('why' in found) return skipLoudly(context, found.why)
    const folder = await temporaryFolder()
    const colonnade = async (...words: string[]): Promise<void> => {
      const { code, stderr } = await start(process.execPath, [MAIN, ...words], { cwd: folder }).ended
      expect(code, stderr).toBe(0)
    }
    await colonnade('train', 'CartPole-v1', 'out=teacher', 'rollouts=none')
    await colonnade('export', 'teacher', 'out=cartpole-expert-v0', 'format=minari', 'episodes=40', 'explore=false')
    process.env.MINARI_DATASETS_PATH = folder
    const script = fileURLToPath(new URL('../support/clone_minari.py', import.meta.url))
    const { code, stdout, stderr } = await attempt(found.python, [script, 'cartpole-expert-v0'])
    expect(code, stderr).toBe(0)
    const cloned = JSON.parse(stdout)
    console.log(`cloned from ${cloned.steps} steps: ${cloned.mean} over 20 episodes, at least ${cloned.min}`)
    expect(cloned.steps).toBeGreaterThan(40 * 450)
    expect(cloned.mean).toBeGreaterThanOrEqual(450)
  },
  PYTHON_MS,
)

test(
  'what Minari itself has written is read',
  async (context) => {
    if (import.meta.env.MODE !== 'minari') skipLoudly(context, 'Minari (npm run test:minari asks it)')
    const found = await findInstalled('minari, pyarrow, gymnasium')
    if ('why' in found) return skipLoudly(context, found.why)
    const folder = await temporaryFolder()
    process.env.MINARI_DATASETS_PATH = folder
    const { code, stdout, stderr } = await attempt(found.python, ['-c', COLLECT])
    expect(code, stderr).toBe(0)
    const table = await readEpisodes(join(folder, 'cartpole', 'random-v0'), cartPole())
    const columnOf = (name: string) => [...table.fields.find((field) => field.name === name)!.column]
    const written = JSON.parse(stdout)
    expect(columnOf('action')).toEqual(written.actions)
    expect(columnOf('observation')).toEqual(written.observations)
    expect(columnOf('terminated').filter((flag) => flag === 1)).toHaveLength(written.terminated)
  },
  PYTHON_MS,
)
