/** The side of `colonnade serve-env` that another program talks to, without that program: `tests/outside/vector-env.test.ts` has Python. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { dirname } from 'node:path'
import { createInterface } from 'node:readline'
import { expect, test } from 'vitest'
import { ColumnFile } from '../../src/base/files/column-file.ts'
import { cartPole, collect, createWorld, mlp } from '../../src/index.ts'
import { MAIN } from '../support/command.ts'

const NUM_LANES = 5
const NUM_STEPS = 60

/** A server, whose columns are read and written as another process does. */
class Client {
  readonly process: ChildProcess
  readonly #lines: AsyncIterator<string>
  hello: { file: string; protocol: string; version: number; environment: string; numPlayers: number } = null as never
  file: ColumnFile = null as never
  /** On standard error. */
  said = ''

  constructor(words: readonly string[]) {
    this.process = spawn(process.execPath, [MAIN, 'serve-env', ...words], { stdio: 'pipe' })
    this.process.stderr!.on('data', (chunk) => {
      this.said += chunk
    })
    this.#lines = createInterface({ input: this.process.stdout! })[Symbol.asyncIterator]()
  }

  static async start(...words: string[]): Promise<Client> {
    const client = new Client(words)
    const hello = JSON.parse((await client.#lines.next()).value)
    client.hello = hello
    client.file = new ColumnFile(hello.file, hello.columns, hello.bytes)
    return client
  }

  async ask(request: string): Promise<string> {
    this.process.stdin!.write(`${request}\n`)
    return (await this.#lines.next()).value
  }

  /** What a column of the file holds now. */
  read<T extends 'f32' | 'u8' = 'f32'>(name: string) {
    this.file.read(name, name)
    return [...this.file.column<T>(name)]
  }

  async act(action: ArrayLike<number>): Promise<string> {
    this.file.column<'i32'>('action').set(action)
    this.file.write('action', 'action')
    return this.ask('step')
  }
}

test.each(['next-step', 'same-step'] as const)(
  'lanes do what a training’s lanes do, with resets in the %s',
  async (autoreset) => {
    const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: NUM_LANES, seed: 3, autoreset })
    world.reserve(world.draft(), { numSteps: NUM_STEPS, learner: {} })
    await collect(world, NUM_STEPS)
    const cohort = world.cohorts[0]!
    if (cohort.kind !== 'episodes') throw new Error('a cohort of episodes')
    const { rollout } = cohort
    const row = (column: Float32Array | Int32Array | Uint8Array, t: number, width = 1) => [
      ...column.subarray(t * NUM_LANES * width, (t + 1) * NUM_LANES * width),
    ]
    const client = await Client.start('CartPole-v1', `numLanes=${NUM_LANES}`, 'seed=7', `autoreset=${autoreset}`)
    expect(client.hello).toMatchObject({ protocol: 'colonnade-columns', version: 1, environment: 'CartPole-v1' })
    expect(await client.ask('reset 3')).toBe('ok')
    let ends = 0
    for (let t = 0; t < NUM_STEPS; t++) {
      expect(client.read('observation')).toEqual(row(rollout.observation, t, 4))
      expect(await client.act(row(rollout.action, t))).toBe('ok')
      expect(client.read('reward')).toEqual(row(rollout.reward, t))
      expect(client.read<'u8'>('terminated')).toEqual(row(rollout.terminated, t))
      expect(client.read<'u8'>('truncated')).toEqual(row(rollout.truncated, t))
      for (const [n, terminated] of row(rollout.terminated, t).entries()) {
        if (terminated === 0) continue
        ends++
        const last = client.read(autoreset === 'same-step' ? 'finalObservation' : 'observation').slice(4 * n, 4 * n + 4)
        expect(Math.abs(last[0]!) > 2.4 || Math.abs(last[2]!) > 0.209).toBe(true)
      }
    }
    expect(ends).toBeGreaterThan(5)
    // Without a seed every lane goes on to its next episode; with it all begin as they did.
    expect(await client.ask('reset')).toBe('ok')
    expect(client.read('observation')).not.toEqual(row(rollout.observation, 0, 4))
    expect(await client.ask('reset 3')).toBe('ok')
    expect(client.read('observation')).toEqual(row(rollout.observation, 0, 4))

    // What is wrong is told, and changes nothing.
    expect(await client.act([0, 0, 7, 0, 0])).toMatch(/^error .*client: got 7 in action\[0\] of lane 2/)
    expect(await client.ask('stop')).toMatch(/^error .*got \\"stop\\", expected reset, reset <seed> or step/)
    expect(await client.act(row(rollout.action, 0))).toBe('ok')
    expect(client.read('observation')).toEqual(row(rollout.observation, 1, 4))

    // Who asks is gone: so is the server, and its file.
    client.process.stdin!.end()
    expect(await once(client.process, 'exit')).toEqual([0, null])
    expect(existsSync(dirname(client.hello.file))).toBe(false)
    client.file.close()
    world.close()
  },
)

test('lanes have the wrappers that the words lay around the environment', async () => {
  const client = await Client.start('CartPole-v1', 'wrappers=frameStack', 'frameStack.frames=2')
  expect(client.hello).toMatchObject({ environment: 'CartPole-v1', observationSpace: { shape: [2, 4] } })
  expect(client.read('observation')).toEqual([
    ...client.read('observation').slice(4),
    ...client.read('observation').slice(4),
  ])
  client.process.stdin!.end()
  expect(await once(client.process, 'exit')).toEqual([0, null])
  client.file.close()
})

test.each(['SIGTERM', 'SIGINT'] as const)(
  '%s ends it at once, without a stack or a file that stays',
  async (signal) => {
    const client = await Client.start('CartPole-v1')
    expect(await client.ask('reset')).toBe('ok')
    client.process.kill(signal)
    expect(await once(client.process, 'exit')).toEqual([null, signal])
    expect(client.said).toBe('')
    expect(existsSync(dirname(client.hello.file))).toBe(false)
    client.file.close()
  },
)

test('a game in turns says who moves, whose choices are those of its mask; without numLanes there is one game', async () => {
  const client = await Client.start('TicTacToeDuel-v0', 'seed=2', 'environment.openingMoves=0')
  expect(client.hello.numPlayers).toBe(2)
  expect(await client.ask('reset')).toBe('ok')
  let mover = client.read<'u8'>('moves').indexOf(1)
  // The first to move takes the top row; the other two squares below it.
  for (const [t, square] of [0, 3, 1, 4, 2].entries()) {
    expect(client.read<'u8'>('moves')).toEqual(mover === 0 ? [1, 0] : [0, 1])
    const mask = client.read<'u8'>('actionMask')
    const legal = (player: number) => mask.slice(9 * player, 9 * player + 9).reduce((sum, each) => sum + each, 0)
    expect([legal(mover), legal(1 - mover)]).toEqual([9 - t, 1])
    expect(await client.act(mover === 0 ? [square, 0] : [0, square])).toBe('ok')
    mover = 1 - mover
  }
  expect(client.read('reward')).toEqual(mover === 0 ? [-1, 1] : [1, -1])
  expect(client.read<'u8'>('moves')).toEqual([0, 0])
  client.process.stdin!.end()
  await once(client.process, 'exit')
})
