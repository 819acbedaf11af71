/**
 * Short trainings of each kind by the command line, with hashes of their last weights and of the last rollout's or
 * trajectories' columns. Values are hashed, not files, so a file's other content does not matter.
 */
import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tableFromIPC } from 'apache-arrow'
import { inProcess } from './command.ts'

const ppo = ['ppo.numSteps=32', 'ppo.updateEpochs=2', 'ppo.numMinibatches=2', 'numLanes=32']
const text = ['languageModel.width=16', 'languageModel.layers=1', 'sft.batchSize=16', 'numLanes=24']
const rl = ['sft.updates=3', 'rl.updates=4', 'rl.groupSize=4', 'rl.groupsPerUpdate=8']

/** The trainings by name. */
export const trainings = {
  CartPole: ['CartPole-v1', 'totalSteps=8192', 'mlp.hidden=16,16', ...ppo],
  Pendulum: ['Pendulum-v1', 'totalSteps=8192', 'mlp.hidden=16', 'environment.maxEpisodeSteps=50', ...ppo],
  Breakout: ['Breakout-MinAtar', 'totalSteps=4096', 'mlp.hidden=16,16', ...ppo],
  convolution: [
    'Breakout-MinAtar',
    'totalSteps=4096',
    'policy=convolutional',
    'convolutional.filters=4,3',
    'convolutional.hidden=8',
    ...ppo,
  ],
  Recall: [
    'Recall-v0',
    'totalSteps=4096',
    'recurrent.units=8',
    'recurrent.hidden=8',
    'recurrent.sequenceLength=8',
    ...ppo,
  ],
  reverse: ['text/reverse', 'environment.maxLength=3', ...text, ...rl],
  arithmetic: ['text/arithmetic-1', 'rl.loss=dapo', 'languageModel.loraRank=2', ...text, ...rl],
}

/** Columns of a table that do not depend on time or machine. */
const COLUMNS = {
  rollouts: [
    'observation',
    'action',
    'reward',
    'terminated',
    'truncated',
    'logprob',
    'value',
    'advantage',
    'lane',
    'step',
  ],
  trajectories: ['promptId', 'group', 'member', 'tokens', 'lossMask', 'logprobs', 'versions', 'reward', 'advantage'],
}

/** Trains in the folder, and returns the hashes. */
export async function bitsOf(name: keyof typeof trainings, threads: number, folder: string) {
  const words = ['train', ...trainings[name], `threads=${threads}`, 'kernels=simd', 'seed=3', `out=${folder}`]
  await run([...words, '--quiet'])
  const isText = trainings[name][0]!.startsWith('text/')
  const kept = isText ? 'trajectories' : 'rollouts'
  const weights = isText ? await modelFile(folder) : join(folder, 'weights.safetensors')
  if (!isText) await run(['export', folder, `out=${weights}`, 'format=safetensors'])
  const table = (await readdir(join(folder, kept))).sort().at(-1)!
  return {
    weights: hashOfTensors(await readFile(weights)),
    [kept]: hashOfTable(await readFile(join(folder, kept, table)), COLUMNS[kept]),
  }
}

async function modelFile(folder: string): Promise<string> {
  const hasAdapter = (await readdir(folder)).includes('adapter')
  return join(folder, ...(hasAdapter ? ['adapter', 'adapter_model.safetensors'] : ['model', 'model.safetensors']))
}

/** Hashes a safetensors file's tensors, without the header. */
function hashOfTensors(bytes: Buffer): string {
  return sha256([bytes.subarray(8 + Number(bytes.readBigUInt64LE(0)))])
}

function hashOfTable(bytes: Buffer, columns: readonly string[]): string {
  const table = tableFromIPC(bytes)
  return sha256(
    columns.map((name) => {
      const values = [...table.getChild(name)!].map((value) => (value?.toArray ? [...value.toArray()] : value))
      return JSON.stringify([name, values], spelled)
    }),
  )
}

/** JSON lacks 64-bit integers, −0, NaN and infinities. */
function spelled(_: string, value: unknown): unknown {
  const isPlain = typeof value !== 'number' || (Number.isFinite(value) && !Object.is(value, -0))
  return typeof value !== 'bigint' && isPlain ? value : Object.is(value, -0) ? '-0' : String(value)
}

function sha256(parts: readonly (string | Buffer)[]): string {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part)
  return hash.digest('hex')
}

async function run(words: readonly string[]): Promise<void> {
  const { code, stderr } = await inProcess(words)
  if (code !== 0) throw new Error(`${words.join(' ')} ended with ${code}: ${stderr}`)
}
