/** LeRobot itself reads our datasets. Asked by `npm run test:lerobot` alone, where COLONNADE_PYTHON names a Python that has it. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { writeLeRobot } from '../../src/entries/data.ts'
import { cartPole, type EnvironmentDefinition, mlp, pendulum, recordEpisodes } from '../../src/index.ts'
import { skipLoudly } from '../support/command.ts'
import { attempt, findInstalled, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const SCRIPT = `
import json, sys
import numpy, torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
root = sys.argv[1]
dataset = LeRobotDataset('colonnade/test', root=root)
ahead = LeRobotDataset('colonnade/test', root=root, delta_timestamps={'action': [0, 1 / dataset.fps]})
second = LeRobotDataset('colonnade/test', root=root, episodes=[1])
rows = [dataset[i] for i in range(len(dataset))]
batch = next(iter(torch.utils.data.DataLoader(dataset, batch_size=4)))
meta = dataset.meta
told = {}
for key, figures in meta.stats.items():
    values = numpy.array([row[key].numpy() for row in rows], dtype='float64').reshape(len(rows), -1)
    own = {'min': values.min(0), 'max': values.max(0), 'mean': values.mean(0), 'std': values.std(0), 'q10': numpy.quantile(values, 0.1, axis=0)}
    told[key] = max(float(abs(figures[name] - own[name]).max()) for name in own)
print('told ' + json.dumps({
  'episodes': meta.total_episodes, 'frames': len(dataset), 'fps': meta.fps, 'task': rows[0]['task'], 'tasks': list(meta.tasks.index),
  'types': {key: [str(value.dtype), list(value.shape)] for key, value in rows[0].items() if key != 'task'},
  'batch': list(batch['observation.state'].shape),
  'ahead': [ahead[0]['action'].tolist(), [bool(x) for x in ahead[len(ahead) - 1]['action_is_pad']]],
  'second': [len(second), sorted({int(second[i]['episode_index']) for i in range(len(second))})],
  'observations': [x for row in rows for x in row['observation.state'].tolist()],
  'actions': [row['action'].tolist() for row in rows],
  'apart': told,
}))
`

test.for<[string, EnvironmentDefinition, string]>([
  ['choices', cartPole({ maxEpisodeSteps: 30 }), 'torch.int64'],
  ['numbers', pendulum({ maxEpisodeSteps: 8 }), 'torch.float32'],
])(
  'LeRobot loads episodes with actions that are %s: rows, types, windows, tasks and figures',
  { timeout: PYTHON_MS },
  async ([, environment, type], context) => {
    if (import.meta.env.MODE !== 'lerobot') return skipLoudly(context, 'LeRobot (npm run test:lerobot asks it)')
    const found = await findInstalled('lerobot.datasets.lerobot_dataset')
    if ('why' in found) return skipLoudly(context, found.why)
    const policy = mlp({ hidden: [4] })
    const weights = new Float32Array(policy.build(environment.observationSpace, environment.actionSpace).numParameters)
    const table = await recordEpisodes({ environment, policy, weights, episodes: 4, seed: 5 })
    const folder = join(await temporaryFolder(), 'set')
    await writeLeRobot(folder, table, environment, { fps: 50 })
    const { code, stdout, stderr } = await attempt(found.python, ['-c', SCRIPT, folder])
    expect(code, stderr).toBe(0)
    const read = JSON.parse(stdout.slice(stdout.indexOf('told ') + 5))
    const columnOf = (name: string) => [...table.fields.find((field) => field.name === name)!.column]
    const width = columnOf('observation').length / table.numRows
    expect(read).toMatchObject({
      ...{ episodes: 4, frames: table.numRows, fps: 50, batch: [4, width] },
      ...{ task: environment.id, tasks: [environment.id] },
      observations: columnOf('observation'),
    })
    expect(read.types).toMatchObject({
      ...{ 'observation.state': ['torch.float32', [width]], action: [type, []], 'next.done': ['torch.bool', []] },
    })
    const actions = columnOf(table.fields.some(({ name }) => name === 'appliedAction') ? 'appliedAction' : 'action')
    expect(read.actions).toEqual(actions)
    expect(read.ahead).toEqual([actions.slice(0, 2), [false, true]])
    const episodes = columnOf('terminated').map((flag, row) => flag + columnOf('truncated')[row]! > 0)
    const first = episodes.indexOf(true)
    expect(read.second).toEqual([episodes.indexOf(true, first + 1) - first, [1]])
    for (const [name, apart] of Object.entries(read.apart)) expect(apart, name).toBeLessThan(1e-6)
  },
)
