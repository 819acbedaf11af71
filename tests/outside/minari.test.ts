/** Minari itself reads our datasets. Asked by `npm run test:minari` alone. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { writeMinari } from '../../src/entries/data.ts'
import { cartPole, mlp, recordEpisodes } from '../../src/index.ts'
import { skipLoudly } from '../support/command.ts'
import { attempt, findPython, PYTHON_MS } from '../support/python.ts'
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
