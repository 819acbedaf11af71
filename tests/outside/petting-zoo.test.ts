/**
 * PettingZoo from PyPI, on both sides: its games here, and Colonnade's in it. `npm run test:vector-env` alone asks it.
 */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test, vi } from 'vitest'
import { checkEnvironment, fromPettingZoo, sharedCritic, wrap } from '../../dist/src/entries/environments.js'
import {
  collect,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  type EpisodeCohort,
  mlp,
  ppo,
  Random,
  Stream,
} from '../../dist/src/index.js'
import { MAIN } from '../support/command.ts'
import { expectSameBits, recorded, support, useFarama } from '../support/farama.ts'
import { attempt } from '../support/python.ts'

const farama = useFarama(import.meta.env.MODE === 'vector-env' ? '' : 'PettingZoo (npm run test:vector-env asks it)')

/** A game's rollout, with actions by chance. */
async function recordedGame(
  options: Partial<Parameters<typeof fromPettingZoo>[0]>,
  numGames: number,
  numSteps: number,
) {
  const { python } = farama
  const environment = fromPettingZoo({ id: 'petting_zoo_countdown', python, maxEpisodeSteps: 40, ...options })()
  const rollout = await recorded(environment, numGames * (environment.numPlayers ?? 1), numSteps)
  return { environment, rollout }
}

test.each([
  ['parallel', 'observations'],
  ['aec', 'observations'],
  ['parallel', 'infos'],
  ['aec', 'infos'],
] as const)(
  'agents that end early see zeros and do nothing until the game is over for all: %s, with masks in %s',
  async (api, masks) => {
    const [numGames, numSteps, numPlayers] = [4, 60, 3]
    const { environment, rollout } = await recordedGame({ api, kwargs: { masks } }, numGames, numSteps)
    expect(environment).toMatchObject({ numPlayers, actionMask: true, actionSpace: { kind: 'discrete', n: 3 } })
    const random = new Random(3)
    let [numEnds, early] = [0, 0]
    for (let game = 0; game < numGames; game++) {
      const left = [0, 0, 0]
      const taken = [0, 0, 0]
      let [episode, steps, mover, isOver] = [0, 0, 0, true]
      for (let t = 0; t < numSteps; t++) {
        if (isOver) {
          random.draw(Stream.reset, game * numPlayers, episode++, 0)
          for (let i = 0; i < 3; i++) left[i] = 2 + ((random.words[0]! + i) % 5)
          steps = mover = 0
          isOver = false
        }
        const live = left.map((each) => each > 0)
        const moving = api === 'parallel' ? live : live.map((_, i) => i === mover)
        const rows = [0, 1, 2].map((i) => (t * numGames + game) * numPlayers + i)
        for (const [i, row] of rows.entries()) {
          const seen = live[i] ? [left[i], steps] : [0, 0]
          expect([...rollout.observation.subarray(2 * row, 2 * row + 2)]).toEqual(seen)
          const mask = [0, 1, 2].map((action) => Number(moving[i] ? left[i]! > action : action === 0))
          expect([...rollout.actionMask.subarray(3 * row, 3 * row + 3)]).toEqual(mask)
          if (moving[i]) taken[i] = rollout.action[row]! + 1
          early += Number(!live[i])
        }
        // In turns all take what they chose when the last of them has chosen.
        const last = live.lastIndexOf(true)
        const takes = api === 'parallel' || mover === last
        if (takes) for (let i = 0; i < 3; i++) left[i]! -= live[i] ? taken[i]! : 0
        steps += Number(takes)
        isOver = left.every((each) => each === 0)
        mover = takes ? left.findIndex((each) => each > 0) : live.indexOf(true, mover + 1)
        for (const [i, row] of rows.entries()) {
          const reward = takes && live[i] ? taken[i]! + 10 * i : 0
          const ends = isOver ? [Number(i !== 2), Number(i === 2)] : [0, 0]
          expect([rollout.reward[row], rollout.terminated[row], rollout.truncated[row]]).toEqual([reward, ...ends])
        }
        numEnds += Number(isOver)
      }
    }
    expect(numEnds).toBeGreaterThan(10)
    expect(early).toBeGreaterThan(20)
  },
)

test.each([
  ['petting_zoo_countdown', 'parallel'],
  ['petting_zoo_countdown', 'aec'],
  ['mpe2.simple_spread_v3', 'parallel'],
  ['pettingzoo.classic.rps_v2', 'parallel'],
  ['pettingzoo.classic.connect_four_v3', 'aec'],
] as const)('%s keeps the contract: %s', (id, api) => {
  const environment = fromPettingZoo({ id, api, python: farama.python, maxEpisodeSteps: 25 })()
  const { checks } = checkEnvironment(environment, { numLanes: 3 * environment.numPlayers!, steps: 30 })
  expect(checks.filter(({ status }) => status === 'failed')).toEqual([])
})

test('games come to the same bits in threads and after a resume', async () => {
  process.env.COLONNADE_TEST_PYTHON = farama.python
  const { countdown, ticTacToe } = await import(new URL('../support/petting-zoo-games.mjs', import.meta.url).href)
  for (const make of [countdown, ticTacToe]) await expectSameBits(make, 12, 7)
})

/** Mean returns and wins of the lanes that a policy plays, in games that were over within 100 steps; with `isDuel` against moves by chance. */
async function evaluated(environment: EnvironmentDefinition, weights: Float32Array | null, isDuel: boolean) {
  const numLanes = 60
  const options = isDuel ? { weightSets: 2 } : {}
  const world = await createWorld({ environment, policy: mlp({ activation: 'relu' }), numLanes, seed: 11, ...options })
  world.reserve(world.draft(), { numSteps: 100, learner: {} })
  const cohort = world.cohort() as EpisodeCohort
  // Weights of 0 choose by chance.
  if (weights === null) cohort.weights.fill(0)
  else cohort.weights.set(weights)
  if (isDuel) {
    cohort.league!.weights[1]!.fill(0)
    // The policy begins in every second game.
    cohort.league!.lanes.policy.forEach((_, n, sets) => {
      sets[n] = (n + Math.floor(n / 2)) % 2
    })
  }
  try {
    await collect(world, 100)
    const { valid, terminated, truncated, episodeReturn } = cohort.rollout
    const returns = Array.from(episodeReturn).filter((_, row) => {
      const isOver = valid[row] === 1 && (terminated[row] === 1 || truncated[row] === 1)
      return isOver && !(isDuel && cohort.league!.lanes.policy[row % numLanes] === 1)
    })
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
    return { mean: mean(returns), wins: mean(returns.map((each) => Number(each > 0))), episodes: returns.length }
  } finally {
    world.close()
  }
}

async function learned(environment: EnvironmentDefinition, algorithm: ReturnType<typeof ppo>, totalSteps: number) {
  const world = await createWorld({ environment, policy: mlp({ activation: 'relu' }), numLanes: 60, seed: 5 })
  const trainer = createTrainer(world, algorithm, { threads: 1 })
  try {
    for await (const _ of trainer.updates({ totalSteps }));
    return world.cohorts[0]!.weights.slice()
  } finally {
    trainer.close()
    world.close()
  }
}

const LEARN_MS = 600_000
const rate = { learningRate: 2e-3, numMinibatches: 8, updateEpochs: 4 }

test('tic-tac-toe of PettingZoo is learned: most games against moves by chance are won', {
  timeout: LEARN_MS,
}, async () => {
  const game = fromPettingZoo({ id: 'pettingzoo.classic.tictactoe_v3', python: farama.python, maxEpisodeSteps: 9 })()
  const weights = await learned(game, ppo({ ...rate, numSteps: 32, gamma: 1, entropyCoef: 0.02 }), 60_000)
  const [trained, byChance] = [await evaluated(game, weights, true), await evaluated(game, null, true)]
  expect(trained.episodes).toBeGreaterThan(300)
  expect(byChance.wins).toBeLessThan(0.55)
  expect(trained.wins).toBeGreaterThan(0.65)
})

test('simple_spread is learned by a critic that sees all players', { timeout: LEARN_MS }, async () => {
  const game = wrap(fromPettingZoo({ id: 'mpe2.simple_spread_v3', python: farama.python })(), sharedCritic())
  const weights = await learned(game, ppo({ ...rate, numSteps: 100, gamma: 0.95, entropyCoef: 0.01 }), 60_000)
  const [trained, byChance] = [await evaluated(game, weights, false), await evaluated(game, null, false)]
  expect(trained.episodes).toBe(4 * 60)
  expect(trained.mean).toBeGreaterThan(byChance.mean + 2)
})

test('critics see the state of the game, actors do not', async () => {
  const [numGames, numSteps, numPlayers, own] = [2, 30, 3, 18]
  const { environment, rollout } = await recordedGame({ id: 'mpe2.simple_spread_v3', state: true }, numGames, numSteps)
  expect(environment.observationSpace).toMatchObject({ shape: [own + numPlayers * own], criticOnly: numPlayers * own })
  const width = own + numPlayers * own
  // The state of this game is what its players see, one after another.
  for (let first = 0; first < numGames * numSteps * numPlayers; first += numPlayers) {
    const seen = Array.from({ length: numPlayers }, (_, i) => {
      const from = (first + i) * width
      return [...rollout.observation.subarray(from, from + own)]
    })
    for (let i = 0; i < numPlayers; i++) {
      const from = (first + i) * width + own
      expect([...rollout.observation.subarray(from, from + numPlayers * own)]).toEqual(seen.flat())
    }
  }
})

test('what does not fit is told', () => {
  const { python } = farama
  const made = (options: Partial<Parameters<typeof fromPettingZoo>[0]>) => () =>
    fromPettingZoo({ id: 'petting_zoo_countdown', python, maxEpisodeSteps: 9, ...options })()
  expect(made({ kwargs: { uneven: true } })).toThrow(
    'got TypeError: action spaces: got Discrete(3) for player_0 and Discrete(4) for player_1, expected one space for all agents',
  )
  expect(made({ id: 'mpe2.simple_adversary_v3' })).toThrow(
    /observation spaces: got Box\(.*\(8,\), float32\) for adversary_0 and Box\(.*\(10,\), float32\) for agent_0/,
  )
  expect(made({ id: 'pettingzoo.classic.tictactoe_v3', api: 'parallel' })).toThrow('got a module without parallel_env')
  expect(made({ id: 'no_such_game' })).toThrow("No module named 'no_such_game'")
  expect(() => fromPettingZoo({ id: 'petting_zoo_countdown', python })()).toThrow(
    'petting_zoo_countdown maxEpisodeSteps: got null, expected a whole number ≥ 1',
  )
  const spread = { id: 'mpe2.simple_spread_v3', python }
  expect(fromPettingZoo(spread)().maxEpisodeSteps).toBe(25)
  expect(fromPettingZoo({ ...spread, api: 'aec' })().maxEpisodeSteps).toBe(25 * 3)
})

test('an exception in a game is told with its lane', async () => {
  await expect(recordedGame({ kwargs: { fault: 'raises' } }, 2, 4)).rejects.toThrow(
    /^environment petting_zoo_countdown, step in lane 0 \(episode 0, step 0\) raised in Python: .*the clock stopped$/s,
  )
})

test.each([
  ['a short mask', 'action_mask of player_0: got [1], expected 3 numbers, each 0 or 1'],
  ['a large mask', 'action_mask of player_0: got [5, 5, 5], expected 3 numbers, each 0 or 1'],
])('%s is refused', async (fault, message) => {
  await expect(recordedGame({ kwargs: { fault } }, 2, 4)).rejects.toThrow(message)
})

test.each(['parallel', 'aec'] as const)(
  'a game is over when its agents are, also without one of them: %s',
  async (api) => {
    const { rollout } = await recordedGame({ api, kwargs: { fault: 'absent' } }, 2, 40)
    let numEnds = 0
    for (let row = 0; row < 2 * 40 * 3; row += 3) {
      expect([...rollout.observation.subarray(2 * row, 2 * row + 2), rollout.reward[row]]).toEqual([0, 0, 0])
      const ends = [...rollout.terminated.subarray(row, row + 3)]
      expect(ends).toEqual(ends[0] === 1 ? [1, 1, 0] : [0, 0, 0])
      expect(rollout.truncated[row + 2]).toBe(ends[0])
      numEnds += ends[0]!
    }
    expect(numEnds).toBeGreaterThan(8)
  },
)

test.each([
  ['raises where player 1 has 1 left', /raised in Python: .*the clock stopped: its episode is truncated/s],
  ['exits', /its Python process ended: .*its episode is truncated/s],
  ['hangs', /its Python process ended: .*Timeout \(0:00:01\).*its episode is truncated/s],
])('a game that %s in its second step is truncated for all players where the user says so', async (fault, message) => {
  const told = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const [numGames, numSteps] = [2, fault.startsWith('raises') ? 40 : 6]
  const { rollout } = await recordedGame(
    { kwargs: { fault }, onFault: 'end-episode', timeoutSeconds: 1 },
    numGames,
    numSteps,
  )
  expect(told.mock.calls[0]![0]).toMatch(message)
  told.mockRestore()
  let [numFaults, numOthers] = [0, 0]
  for (let row = 0; row < numGames * numSteps * 3; row += 3) {
    const [left, steps] = [0, 1].map((k) => rollout.observation[2 * (row + 1) + k]!)
    const isSecond = rollout.observation.subarray(2 * row, 2 * row + 6).some((each, k) => k % 2 === 1 && each === 1)
    const isFault = isSecond && (fault.startsWith('raises') ? left === 1 && steps === 1 : true)
    const rewards = [...rollout.reward.subarray(row, row + 3)]
    const ends = [...rollout.terminated.subarray(row, row + 3), ...rollout.truncated.subarray(row, row + 3)]
    if (isFault) expect([...rewards, ...ends]).toEqual([0, 0, 0, 0, 0, 0, 1, 1, 1])
    else expect([rewards.some((each) => each > 0), ends[3], ends[4]]).toEqual([true, 0, 0])
    const next = row + 3 * numGames
    // The next row begins a new episode, in which no one has made a step.
    if (isFault && next < rollout.reward.length)
      expect([1, 3, 5].map((k) => rollout.observation[2 * next + k])).toEqual([0, 0, 0])
    numFaults += Number(isFault)
    numOthers += Number(isSecond && !isFault)
  }
  expect(numFaults).toBeGreaterThan(2)
  if (fault.startsWith('raises')) expect(numOthers).toBeGreaterThan(5)
})

test('our games are parallel and AEC environments of PettingZoo, by its own tests', async () => {
  const folder = fileURLToPath(new URL('../../python', import.meta.url))
  const { code, stdout, stderr } = await attempt(farama.python, [
    join(support, 'petting_zoo.py'),
    folder,
    process.execPath,
    MAIN,
  ])
  expect(code, stderr).toBe(0)
  const found = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  const [atOnce, inTurns] = [
    ['PredatorPrey-v0', 'Snake-v0', 'CartPole-v1'],
    ['ConnectFour-v0', 'TicTacToeDuel-v0'],
  ]
  const passed = (name: string, games: readonly string[]) => games.map((game) => `${name} ${game}`)
  expect(found.passed.toSorted()).toEqual(
    [
      ...passed('parallel_api_test', [...atOnce, ...inTurns]),
      ...passed('parallel_seed_test', atOnce),
      'state_test PredatorPrey-v0',
      ...['api_test', 'seed_test'].flatMap((name) => passed(name, [...inTurns, 'PredatorPrey-v0'])),
    ].toSorted(),
  )
  expect(found.together).toMatchObject({ steps: 30, rewarded: expect.any(Number) })
  expect(found.together.rewarded).toBeGreaterThan(0)
  expect(found).toMatchObject({
    missing:
      "PredatorPrey-v0: got actions for ['player_0'], expected one for each of ['player_0', 'player_1', 'player_2', 'player_3']",
    outside: 'PredatorPrey-v0 player_0: got 7, expected one of Discrete(5)',
    fraction: 'PredatorPrey-v0 player_0: got 1.7, expected one of Discrete(5)',
    illegal: expect.stringMatching(
      /^ConnectFour-v0 player_\d: got action 3, expected a legal one: \[0, 1, 2, 4, 5, 6\]$/,
    ),
    begins: ['player_0', 'player_1'],
  })
})
