import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connectFour } from '../../src/environments/games/connect-four.ts'
import { configureRun, type EnvironmentDefinition, type EnvironmentId, startRun } from '../../src/index.ts'
import type { EpisodeRunDefinition } from '../../src/training/run/definition.ts'
import { reachedByPreset, reachedByTextPreset } from '../../src/training/run/presets.ts'
import { temporaryFolder } from '../support/temporary.ts'

const MANY = { episodeReturn: 475, reached: 5, seeds: 6 }

async function reachedBy(environment: EnvironmentId, keys: Record<string, string>) {
  return reachedByPreset((await configureRun(environment, keys)) as EpisodeRunDefinition)
}

test('a run that follows a preset with which some seeds fail says of how many it is known', async () => {
  const { environment, ...rest } = await configureRun('CartPole-P-v1', {
    seed: '3',
    rollouts: 'none',
    kernels: 'plain',
  })
  const run = await startRun({ environment, ...rest }, join(await temporaryFolder(), 'run'))
  const summary = await run.train({ signal: AbortSignal.abort() })
  expect(summary).toMatchObject({ status: 'interrupted', updates: 0, presetReached: MANY })
})

test('an algorithm of action values comes with its policy, and the policy with it', async () => {
  const partsOf = async (environment: EnvironmentId, keys: Record<string, string>) => {
    const { policy, algorithm } = await configureRun(environment, keys)
    return [algorithm.id, policy.id]
  }
  expect(await partsOf('Acrobot-v1', { algorithm: 'dqn' })).toEqual(['dqn', 'qNetwork'])
  expect(await partsOf('Acrobot-v1', { policy: 'qNetwork' })).toEqual(['dqn', 'qNetwork'])
  expect(await partsOf('MountainCarContinuous-v0', { algorithm: 'sac' })).toEqual(['sac', 'sacNetwork'])
  expect(await partsOf('MountainCarContinuous-v0', { policy: 'td3Network' })).toEqual(['td3', 'td3Network'])
  expect(await partsOf('MountainCar-v0', {})).toEqual(['dqn', 'qNetwork'])
  expect(await partsOf('MountainCar-v0', { algorithm: 'ppo' })).toEqual(['ppo', 'mlp'])
  expect(await partsOf('CartPole-v1', {})).toEqual(['ppo', 'mlp'])
})

test("a preset's settings of the environment are a run's, where it has none of its own", async () => {
  const parametersOf = async (keys: Record<string, string>) =>
    (await configureRun('ConnectFour-v0', keys)).environment.parameters
  expect(connectFour().parameters).toEqual({ openingMoves: 0, showLines: false })
  expect(await parametersOf({})).toEqual({ openingMoves: 6, showLines: true })
  expect(await parametersOf({ 'environment.openingMoves': '0' })).toEqual({ openingMoves: 0, showLines: true })
  expect(await parametersOf({ algorithm: 'dqn' })).toEqual({ openingMoves: 0, showLines: false })
  const known = connectFour.presets[0]!
  const run = (await configureRun('ConnectFour-v0', {})) as EpisodeRunDefinition
  const reached = { episodeReturn: 0, reached: 1, seeds: 2 }
  const ofPreset = (environment: EnvironmentDefinition) =>
    reachedByPreset({ ...run, environment: { ...environment, presets: [{ ...known, reached }] } })
  expect(ofPreset(connectFour({ openingMoves: 6, showLines: true }))).toEqual(reached)
  expect(ofPreset(connectFour({ openingMoves: 5, showLines: true }))).toBeNull()
  const onDevice = (await configureRun('ConnectFour-v0', { 'mlp.device': 'webgpu' })) as EpisodeRunDefinition
  expect(
    reachedByPreset({ ...onDevice, environment: { ...onDevice.environment, presets: [{ ...known, reached }] } }),
  ).toBeNull()
})

test('a run that goes its own way, or by a preset that has not failed, has nothing to say of it', async () => {
  expect(await reachedBy('CartPole-P-v1', { seed: '9', checkpointEvery: '7' })).toEqual(MANY)
  expect(await reachedBy('CartPole-P-v1', { totalSteps: '400000' })).toBeNull()
  expect(await reachedBy('CartPole-P-v1', { 'ppo.learningRate': '1e-3' })).toBeNull()
  expect(await reachedBy('CartPole-P-v1', { 'recurrent.hidden': '32' })).toBeNull()
  expect(await reachedBy('CartPole-P-v1', { policy: 'mlp' })).toBeNull()
  // A setting that the preset leaves at its default is another then, too.
  expect(await reachedBy('CartPole-P-v1', { 'ppo.clipCoef': '0.5' })).toBeNull()
  expect(await reachedBy('CartPole-P-v1', { 'recurrent.sharedTrunk': 'true' })).toBeNull()
  expect(await reachedBy('CartPole-P-v1', { 'environment.maxEpisodeSteps': '100' })).toBeNull()
  expect(await reachedBy('CartPole-P-v1', { systems: 'normalizeRewards' })).toBeNull()
  expect(await reachedBy('CartPole-P-v1', { wrappers: 'frameStack' })).toBeNull()
  expect(await reachedBy('Breakout-MinAtar', { policy: 'convolutional' })).toMatchObject({ reached: 2, seeds: 3 })
  expect(await reachedBy('Breakout-MinAtar', {})).toBeNull()
  expect(await reachedBy('CartPole-v1', {})).toBeNull()
})

test('so does one of a new language model, unless something that its preset has, or the model, is another', async () => {
  const reached = async (
    keys: Record<string, string>,
    environment: 'text/reverse' | 'text/arithmetic-1' = 'text/reverse',
  ) => reachedByTextPreset(await configureRun(environment, keys))
  const some = { groupReward: 0.95, reached: 6, seeds: 6 }
  expect(await reached({ seed: '7', checkpointEvery: '3', threads: '1' })).toEqual(some)
  for (const [key, value] of Object.entries({
    ...{ 'rl.loss': 'gspo', 'rl.updates': '100', 'sft.updates': '40', 'loss.entropyCoef': '0.01', numLanes: '64' },
    ...{ mode: 'rl', 'environment.maxLength': '5', 'languageModel.width': '32', 'languageModel.cacheBits': '16' },
  })) {
    expect(await reached({ [key]: value }), key).toBeNull()
  }
  expect(await reached({}, 'text/arithmetic-1')).toBeNull() // Each of its seeds succeeds.
  const run = await startRun(await configureRun('text/reverse', { threads: '1' }), join(await temporaryFolder(), 'run'))
  const summary = await run.train({ signal: AbortSignal.abort() })
  expect(summary).toMatchObject({ status: 'interrupted', updates: 0, presetReached: some })
})
