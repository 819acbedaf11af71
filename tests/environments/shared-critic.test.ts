/** Critics that see whole games: what they read, computed again from what each player sees. */
import { expect, test } from 'vitest'
import { spaceWidth } from '../../src/base/space.ts'
import {
  checkEnvironment,
  connectFour,
  frameStack,
  predatorPrey,
  sharedCritic,
  snake,
  wrap,
} from '../../src/entries/environments.ts'
import {
  type BoxSpace,
  box,
  cartPole,
  collect,
  createTrainer,
  createWorld,
  discrete,
  type EnvironmentDefinition,
  type EpisodeCohort,
  mlp,
  ppo,
} from '../../src/index.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

const [PREDATORS, PREY] = [2, 1]
const NUM_PLAYERS = PREDATORS + PREY
/** What a player of this game sees: its role, its place, and its offsets to all players. */
const OWN = 3 + 2 * NUM_PLAYERS
const chase = () => wrap(predatorPrey({ predators: PREDATORS, prey: PREY, maxEpisodeSteps: 20 }), sharedCritic())

test('a lane sees its own observation first, then those of the players after it; the actor has weights for the first alone', () => {
  const { observationSpace, numPlayers } = chase()
  expect(numPlayers).toBe(NUM_PLAYERS)
  expect(observationSpace).toMatchObject({ shape: [NUM_PLAYERS * OWN], criticOnly: (NUM_PLAYERS - 1) * OWN })
  const { parameters } = mlp({ hidden: [7] }).build(observationSpace, discrete(5))
  const shapes = Object.fromEntries(parameters.map(({ name, shape }) => [name, shape]))
  expect([shapes['actor.0.weight'], shapes['critic.0.weight']]).toEqual([
    [OWN, 7],
    [NUM_PLAYERS * OWN, 7],
  ])
})

test('values are those of the observations of all players, actions those of a player’s own', async () => {
  const [numLanes, numSteps, hidden] = [4 * NUM_PLAYERS, 45, 6]
  const policy = mlp({ hidden: [hidden] })
  const world = await createWorld({ environment: chase(), policy, numLanes, seed: 3 })
  world.reserve(world.draft(), { numSteps, learner: {} })
  await collect(world, numSteps)
  const { rollout, weights } = world.cohort() as EpisodeCohort
  const width = NUM_PLAYERS * OWN
  const { parameters } = policy.build(chase().observationSpace, discrete(5))
  const part = (name: string) => {
    const { offset, shape } = parameters.find((each) => each.name === name)!
    return weights.subarray(offset, offset + shape.reduce((product, side) => product * side, 1))
  }
  const layer = (x: readonly number[], name: string) => {
    const bias = part(`${name}.bias`)
    return Array.from(bias, (b, j) =>
      x.reduce((sum, each, k) => sum + each * part(`${name}.weight`)[k * bias.length + j]!, b),
    )
  }
  let told = 0
  for (let row = 0; row < numSteps * numLanes; row++) {
    const player = row % NUM_PLAYERS
    const own = (i: number) => {
      const from = (row - player + i) * width
      return [...rollout.observation.subarray(from, from + OWN)]
    }
    // A player knows its role by its place in the game, and has no offset to itself.
    const mine = own(player)
    expect(mine[0]).toBe(player < PREDATORS ? 1 : 0)
    expect(mine.slice(3 + 2 * player, 5 + 2 * player)).toEqual([0, 0])
    const all = Array.from({ length: NUM_PLAYERS }, (_, i) => own((player + i) % NUM_PLAYERS)).flat()
    const [value] = layer(layer(all, 'critic.0').map(Math.tanh), 'critic.head')
    expect(Math.abs(rollout.value[row]! - value!)).toBeLessThan(1e-5)
    const logits = layer(layer(mine, 'actor.0').map(Math.tanh), 'actor.head')
    const total = logits.reduce((sum, z) => sum + Math.exp(z), 0)
    expect(Math.abs(rollout.logprob[row]! - (logits[rollout.action[row]!]! - Math.log(total)))).toBeLessThan(1e-5)
    told++
  }
  expect(told).toBe(numSteps * numLanes)
  world.close()
})

test('a training has the same bits on several threads, and after a resume', async () => {
  const trained = async (threads: number, updates: number, folder?: string) => {
    const policy = mlp({ hidden: [8] })
    const world = await createWorld({ environment: chase(), policy, numLanes: 4 * NUM_PLAYERS, seed: 2 })
    const options = { threads, ...(folder === undefined ? {} : { folder }) }
    const trainer = createTrainer(world, ppo({ numSteps: 15, numMinibatches: 2, updateEpochs: 2 }), options)
    try {
      if (folder !== undefined && updates === 5) await trainer.restore()
      for await (const { update } of trainer.updates({ totalSteps: 5 * 15 * 12 })) if (update === updates) break
      if (folder !== undefined) await trainer.save()
      return world.cohort().weights.slice()
    } finally {
      trainer.close()
      world.close()
    }
  }
  const alone = await trained(1, 5)
  expect(alone.every(Number.isFinite)).toBe(true)
  expect(await trained(2, 5)).toEqual(alone)
  const folder = await temporaryFolder()
  expect(await trained(2, 3, folder)).not.toEqual(alone)
  expect(await trained(1, 5, folder)).toEqual(alone)
})

test.each(
  rowsOf(
    [
      ['chase', chase],
      ['connect four', () => wrap(connectFour(), sharedCritic())],
      ['snakes', () => wrap(snake({ snakes: 2 }), sharedCritic())],
    ] as const,
    2,
  ),
)('keeps the contract: %s', (_, make) => {
  const environment = make()
  const { checks } = checkEnvironment(environment, { numLanes: 4 * environment.numPlayers!, steps: 30 })
  expect(checks.filter(({ status }) => status === 'failed')).toEqual([])
})

test('frames of a player are stacked inside, not outside', () => {
  const inside = wrap(predatorPrey(), frameStack({ frames: 2 }), sharedCritic())
  const width = spaceWidth(predatorPrey().observationSpace)
  expect(inside.observationSpace).toMatchObject({ shape: [4 * 2 * width], criticOnly: 3 * 2 * width })
  expect(() => wrap(predatorPrey(), sharedCritic(), frameStack({ frames: 2 }))).toThrow(
    'wrapper frameStack: got around observations with a part for critics alone, which actors would see',
  )
})

test('what has no other players, or a critic that sees more already, is refused', () => {
  expect(() => wrap(cartPole(), sharedCritic())).toThrow('sharedCritic: got around CartPole-v1, which has one player')
  const game: EnvironmentDefinition = predatorPrey()
  const { low, high } = game.observationSpace as BoxSpace
  const seeing = { ...game, observationSpace: box({ low, high, criticOnly: 1 }) }
  expect(() => wrap(seeing, sharedCritic())).toThrow(
    'sharedCritic: got around PredatorPrey-v0, whose critics see more than actors',
  )
})
