/** `npm run bench`: a table for people, then one JSON line. */
import { createKernels, VERSION } from '../src/index.ts'
import { environmentSteps } from './environments/steps.ts'
import { check, type Line, line, printTable, time } from './measure.ts'
import { trainingSteps } from './training/steps.ts'

/** Generalized advantage estimation over 128 steps × 8192 lanes. */
function gae(): Line {
  const [numSteps, numLanes] = [128, 8192]
  const rows = numSteps * numLanes
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true })
  const kernels = createKernels(memory, 'plain')
  const ones = () => new Float32Array(rows).fill(1)
  const flags = () => new Uint8Array(rows)
  const [advantage, returns, carry] = [ones(), ones(), new Float32Array(numLanes)]
  const [reward, value, nextValue, terminated, truncated] = [ones(), ones(), ones(), flags(), flags()]
  const valid = flags().fill(1)
  const run = () =>
    kernels.gae(
      advantage,
      returns,
      carry,
      reward,
      value,
      nextValue,
      terminated,
      truncated,
      valid,
      0.9,
      0.5,
      numSteps,
      numLanes,
    )
  run()
  check(Math.abs(advantage[rows - 1]! - 0.9) < 1e-6, 'the last advantage is 1 + 0.9 · 1 − 1')
  check(Math.abs(advantage[0]! - 0.9 / (1 - 0.45)) < 1e-6, 'the first is the geometric sum')
  return line(`GAE, ${numSteps} × ${numLanes}`, 'rows', rows, time(run))
}

const lines = [...(await environmentSteps()), ...(await trainingSteps()), gae()]
printTable(lines)
console.log(JSON.stringify({ colonnade: VERSION, node: process.version, kernels: 'plain', threads: 1, lines }))
