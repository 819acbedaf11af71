#!/usr/bin/env node
// Stands for Python with `colonnade.py`: a walk on a line, served over columns as that script serves Gymnasium's environments.
// `kwargs` say how long it is and what goes wrong.
import { randomUUID } from 'node:crypto'
import { closeSync, ftruncateSync, openSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ColumnFile, Doorbell, planFile } from '../../dist/src/base/files/column-file.js'

const { id, kwargs, numLanes, timeoutSeconds } = JSON.parse(process.argv[3])
const { size = 6, fault = '', actions = 'discrete', version = 1 } = kwargs
const spaces = {
  discrete: { kind: 'discrete', n: 3 },
  two: { kind: 'multi-discrete', sizes: [3, 2] },
  box: { kind: 'box', shape: [1], low: ['-inf'], high: ['2.5'] },
}
const hello = {
  ...{ protocol: 'colonnade-columns', version, maxEpisodeSteps: kwargs.steps ?? null, returnThreshold: size },
  observationSpace: { kind: 'box', shape: [2], low: ['-inf', '0'], high: ['inf', '1'] },
  actionSpace: spaces[actions],
}
if (numLanes === undefined) {
  console.log(`of ${id}\n${JSON.stringify(hello)}\n[1]`)
  process.exit(0)
}
const width = actions === 'two' ? 2 : 1
const { columns, bytes } = planFile({
  ...{ row: ['u32', [numLanes, 1]], seed: ['u32', [numLanes, 1]] },
  action: [actions === 'box' ? 'f32' : 'i32', [numLanes, width]],
  ...{ observation: ['f32', [numLanes, 2]], reward: ['f64', [numLanes, 1]] },
  ...{ terminated: ['u8', [numLanes, 1]], truncated: ['u8', [numLanes, 1]] },
})
const path = join(tmpdir(), `colonnade-${randomUUID()}`)
const fd = openSync(path, 'w')
ftruncateSync(fd, bytes)
closeSync(fd)
const file = new ColumnFile(path, columns, bytes)
const [row, seed, action, observation, reward, terminated, truncated] = Object.keys(columns).map((name) =>
  file.column(name),
)
const bell = new Doorbell(0, 1)
bell.write(JSON.stringify({ ...hello, file: path, bytes, columns }))
const envs = new Map()

/** Takes the step of the i-th row. */
function step(i) {
  const env = envs.get(row[i])
  const move = Math.sign(action[i * width] - (actions === 'box' ? 0 : 1)) * (width === 2 ? 1 + action[2 * i + 1] : 1)
  if (move < 0 && fault === 'raises') throw new Error('the wheel came off')
  if (move < 0 && fault === 'exits') {
    console.error(`last words after ${timeoutSeconds} s`)
    process.exit(3)
  }
  env.at += move
  env.steps++
  observation.set([env.at, env.steps / 100], 2 * i)
  reward[i] = move < 0 && fault === 'nan reward' ? Number.NaN : move + env.at / 8
  if (move < 0 && fault === 'nan') observation[2 * i + 1] = Number.NaN
  terminated[i] = env.at >= size ? 1 : 0
  truncated[i] = env.at <= -size ? 1 : 0
}

for (let line = bell.read(); line !== null; line = bell.read()) {
  const [word, count] = line.split(' ')
  file.read('row', 'action')
  let [answer, i] = ['ok', 0]
  try {
    for (; i < Number(count); i++) {
      if (word === 'reset') {
        envs.set(row[i], { at: fault === 'other' ? envs.size : seed[i] % 4, steps: 0 })
        observation.set([envs.get(row[i]).at, 0], 2 * i)
      } else step(i)
    }
  } catch ({ message }) {
    answer = `error ${JSON.stringify({ row: row[i], message: `${message}\n` })}`
  }
  file.write('observation', 'truncated')
  bell.write(answer)
}
