/** Gymnasium's vector CartPole against ours, and NumPy's advantages against ours. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { cartPole } from '../../src/index.ts'
import { bestKernelBuild, createKernels } from '../../src/kernels/bind.ts'
import { Companion } from '../companion.ts'
import { environmentRunner } from '../environments/steps.ts'
import { Columns } from '../kernels/columns.ts'
import { TwinNumbers } from '../kernels/network.ts'
import { check, checkClose, type Figure, figure, interleave, rates, ratio, secondsOf } from '../measure.ts'
import { peerSource } from './python.ts'

const LANES = 1024
const TICKS = 1000
const GAE_STEPS = 128
const GAE_LANES = 8192
const GAMMA = 0.99
const LAMBDA = 0.95
const REPEATS = 9

export async function gymnasiumFigures(python: string): Promise<Figure[]> {
  const peer = new Companion(python, [peerSource('gymnasium_numpy.py')])
  try {
    return [...(await cartPoleFigures(peer)), ...(await gaeFigures(peer))]
  } finally {
    peer.close()
  }
}

async function cartPoleFigures(peer: Companion): Promise<Figure[]> {
  const request = `cartpole ${LANES} ${TICKS}`
  const { ends, version } = await peer.ask<{ ends: number; version: string }>(request)
  const length = (LANES * TICKS) / ends
  check(length > 15 && length < 30, `random episodes are 15 to 30 steps long in Gymnasium, not ${length}`)
  const ours = await environmentRunner(cartPole(), LANES, TICKS)
  const seconds = await interleave(
    { ours, theirs: async () => (await peer.ask<{ seconds: number }>(request)).seconds },
    { repeats: REPEATS, warmups: 2 },
  )
  const name = `CartPole-v1, environment only, ${LANES} lanes`
  return [
    figure(`${name}, Gymnasium ${version} CartPoleVectorEnv`, 'steps/s', rates(LANES * TICKS, seconds.theirs)),
    {
      ...figure(`${name}, Colonnade, 1 thread`, 'steps/s', rates(LANES * TICKS, seconds.ours)),
      ratios: [ratio('Gymnasium', seconds.theirs, seconds.ours, { atLeast: 12 })],
    },
  ]
}

async function gaeFigures(peer: Companion): Promise<Figure[]> {
  const memory = new WebAssembly.Memory({ initial: 640, maximum: 640, shared: true })
  const [columns, numbers] = [new Columns(memory), new TwinNumbers()]
  const rows = GAE_STEPS * GAE_LANES
  const floats = () => columns.floats(rows)
  const [advantage, returns, reward, value, nextValue] = [floats(), floats(), floats(), floats(), floats()]
  const [carry, terminated, truncated] = [columns.floats(GAE_LANES), columns.flags(rows), columns.flags(rows)]
  const valid = columns.flags(rows).fill(1)
  for (const column of [reward, value, nextValue]) numbers.fill(column, -1, 1)
  for (let i = 0; i < rows; i++) terminated[i] = numbers.uniform(0, 1) < 0.02 ? 1 : 0
  const folder = mkdtempSync(join(tmpdir(), 'colonnade-gae-'))
  try {
    const given = { reward, value, nextValue, terminated }
    for (const [name, column] of Object.entries(given)) writeFileSync(join(folder, name), column)
    const kernels = createKernels(memory, bestKernelBuild())
    const rollout = { advantage, return: returns, reward, value, nextValue, terminated, truncated, valid }
    const run = () => kernels.gae(rollout, carry, GAMMA, LAMBDA, GAE_STEPS, GAE_LANES)
    run()
    const request = `gae ${folder} ${GAE_STEPS} ${GAE_LANES} ${GAMMA} ${LAMBDA}`
    const sums = await peer.ask<{ advantage: number; returns: number; version: string }>(request)
    const sum = (column: Float32Array) => column.reduce((total, x) => total + Math.abs(x), 0)
    checkClose(sum(advantage), sums.advantage, 1e-5, 'the sum of |advantage|')
    checkClose(sum(returns), sums.returns, 1e-5, 'the sum of |return|')
    const seconds = await interleave(
      { ours: () => secondsOf(run), theirs: async () => (await peer.ask<{ seconds: number }>(request)).seconds },
      { repeats: 3 * REPEATS, warmups: 5 },
    )
    const name = `GAE, ${GAE_STEPS} × ${GAE_LANES}`
    return [
      figure(`${name}, NumPy ${sums.version}`, 'rows/s', rates(rows, seconds.theirs)),
      {
        ...figure(`${name}, Colonnade, 1 thread`, 'rows/s', rates(rows, seconds.ours)),
        ratios: [ratio('NumPy', seconds.theirs, seconds.ours, { atLeast: 2.5 })],
      },
    ]
  } finally {
    rmSync(folder, { recursive: true })
  }
}
