/**
 * PettingZoo from PyPI, on both sides: its games here, and Colonnade's in it. `npm run test:vector-env` alone asks it.
 */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, beforeEach, expect, test } from 'vitest'
import { MAIN, skipLoudly } from '../support/command.ts'
import { attempt, FARAMA, FARAMA_MODULES, findPython, PYTHON_MS } from '../support/python.ts'

const support = fileURLToPath(new URL('../support/', import.meta.url))

let why = ''
let python = ''

beforeAll(async () => {
  if (import.meta.env.MODE !== 'vector-env') {
    why = 'PettingZoo (npm run test:vector-env asks it)'
    return
  }
  const found = await findPython(FARAMA, FARAMA_MODULES)
  if ('why' in found) why = found.why
  else python = found.python
}, PYTHON_MS)

beforeEach((context) => {
  if (why !== '') skipLoudly(context, why)
})

test('our games are parallel and AEC environments of PettingZoo, by its own tests', async () => {
  const folder = fileURLToPath(new URL('../../python', import.meta.url))
  const { code, stdout, stderr } = await attempt(python, [
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
    illegal: expect.stringMatching(
      /^ConnectFour-v0 player_\d: got action 3, expected a legal one: \[0, 1, 2, 4, 5, 6\]$/,
    ),
    begins: ['player_0', 'player_1'],
  })
})
