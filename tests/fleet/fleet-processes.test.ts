/** Fleets of real processes over a real broker: by the command line, with kills. */
import { type ChildProcess, spawn } from 'node:child_process'
import { cp, mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type NatsServer, natsFolder, startNats, whyNoNats } from '../support/fleet-carriers.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { seeded } from '../support/tiers.ts'

const reason = await whyNoNats()
const root = fileURLToPath(new URL('../..', import.meta.url))
/** A copy of the package beside the client's packages. */
const own = join(natsFolder, 'node_modules/colonnade')
const main = join(own, 'dist/src/cli/main.js')

interface Program {
  readonly child: ChildProcess
  readonly text: () => string
  readonly ended: Promise<number | null>
}

describe.skipIf(reason !== null)('a fleet of processes', () => {
  let nats: NatsServer
  let folder: string
  const programs = new Set<Program>()
  const start = (...words: string[]): Program => {
    const child = spawn(process.execPath, [main, ...words], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
    let text = ''
    for (const stream of [child.stdout, child.stderr]) stream!.on('data', (chunk) => (text += chunk))
    const ended = new Promise<number | null>((resolve) => child.once('exit', resolve))
    const program = { child, text: () => text, ended }
    programs.add(program)
    void ended.then(() => programs.delete(program))
    return program
  }
  const run = async (...words: string[]) => {
    const program = start(...words)
    const code = await program.ended
    return { code, text: program.text() }
  }
  const trained = ['totalSteps=40000', 'seed=1', 'checkpointEvery=4', 'rollouts=all', '--quiet']
  /** The rows that a run has recorded, by update, and its weights' figures at the end. */
  const recorded = async (name: string) => {
    const files = (await readdir(join(folder, name, 'rollouts'))).sort()
    return Promise.all(
      files.map(async (file) => [file, await readFile(join(folder, name, 'rollouts', file), 'base64')]),
    )
  }

  beforeAll(async () => {
    nats = await startNats()
    folder = await temporaryFolder()
    await rm(own, { recursive: true, force: true })
    await mkdir(own, { recursive: true })
    await cp(join(root, 'dist/src'), join(own, 'dist/src'), { recursive: true })
    await cp(join(root, 'package.json'), join(own, 'package.json'))
  })
  afterAll(async () => {
    for (const { child } of programs) child.kill('SIGKILL')
    await nats.end()
  })

  test('learns the same as one process, is shown, and refuses passwords in its address', async () => {
    const alone = await run('train', 'CartPole-v1', ...trained, 'out=alone')
    expect(alone.code, alone.text).toBe(0)
    const address = `${nats.address}/whole`
    const actors = [1, 2, 3].map(() => start('actor', address))
    const fleet = [`fleet=${address}`, 'actors=3', `store=${join(folder, 'store')}`]
    const learner = start('train', 'CartPole-v1', ...trained, ...fleet, 'out=whole')
    await expect
      .poll(async () => JSON.parse((await run('fleet', address, '--json')).text || '{}').actors?.length, {
        timeout: 30_000,
        interval: 500,
      })
      .toBe(3)
    expect(await learner.ended, learner.text()).toBe(0)
    for (const actor of actors) expect(await actor.ended, actor.text()).toBe(0)
    expect(await recorded('whole')).toEqual(await recorded('alone'))
    const checkpoint = (name: string) =>
      readFile(join(folder, name, 'checkpoints/00000040/columns.safetensors'), 'base64')
    expect(await checkpoint('whole')).toBe(await checkpoint('alone'))

    const secret = await run('train', 'CartPole-v1', ...fleet.slice(1), 'fleet=nats://me:a-secret@127.0.0.1:4222/whole')
    expect(secret.text).toContain('fleet: got an address with credentials')
    expect(secret.text).not.toContain('a-secret')
  })

  test('refuses a second learner, and stops at an order, with a checkpoint', async () => {
    const address = `${nats.address}/ordered`
    const actor = start('actor', address)
    const fleet = [`fleet=${address}`, 'actors=2', `store=${join(folder, 'store')}`]
    const learner = start('train', 'CartPole-v1', 'totalSteps=100000000', ...fleet, 'out=ordered', '--json')
    await expect
      .poll(async () => JSON.parse((await run('fleet', address, '--json')).text || '{}').learner?.update, {
        timeout: 30_000,
        interval: 500,
      })
      .toBeGreaterThan(2)
    const second = await run('train', 'CartPole-v1', ...fleet, 'out=second')
    expect(second.text).toMatch(/learner: got a name that .*, process \d+ already holds, expected another name/)
    await run('fleet', address, 'order=stop')
    expect(await learner.ended, learner.text()).toBe(0)
    expect(learner.text()).toContain('"status":"interrupted"')
    expect(await actor.ended, actor.text()).toBe(0)
    expect((await readdir(join(folder, 'ordered/checkpoints'))).length).toBeGreaterThan(0)
  })

  test('ends at a signal while it waits for actors', async () => {
    const fleet = [`fleet=${nats.address}/lonely`, 'actors=2', `store=${join(folder, 'store')}`]
    const learner = start('train', 'CartPole-v1', ...fleet, 'out=lonely')
    await expect
      .poll(() => learner.text(), { timeout: 60_000, interval: 500 })
      .toContain('no actor has returned a result')
    learner.child.kill('SIGTERM')
    expect(await learner.ended, learner.text()).toBe(143)
    expect((await readdir(join(folder, 'lonely/checkpoints'))).length).toBe(1)
  })

  test('helpers that are killed during gradients change no bit, and a learner that is killed finds them again', async () => {
    const draw = seeded(3)
    const settings = [...trained, 'ppo.numMinibatches=1', 'numLanes=16'] // Gradients of 8 blocks.
    const alone = await run('train', 'CartPole-v1', ...settings, 'out=one')
    expect(alone.code, alone.text).toBe(0)
    const address = `${nats.address}/helped`
    const fleet = [`fleet=${address}`, 'actors=1', `store=${join(folder, 'store')}`, 'learners=4', 'actorSeconds=2']
    const actor = start('actor', address)
    const help = () => start('actor', address, 'role=learn')
    const helpers = [help(), help()]
    let learner = start('train', 'CartPole-v1', ...settings, ...fleet, 'out=helped')
    const kills = { helpers: 0, learner: 0 }
    for (let code: number | null | undefined; code !== 0; ) {
      code = await Promise.race([learner.ended, sleep(1000 + 1500 * draw()).then(() => undefined)])
      if (code === 0) break
      expect(code, learner.text()).toBeUndefined()
      if (draw() < 0.7 && kills.helpers < 6) {
        const i = Math.floor(draw() * helpers.length)
        helpers[i]!.child.kill('SIGKILL')
        helpers[i] = help()
        kills.helpers++
      } else if (
        kills.learner < 2 &&
        (await readdir(join(folder, 'helped')).catch(() => [] as string[])).includes('config.json')
      ) {
        learner.child.kill('SIGKILL')
        await learner.ended
        learner = start('resume', 'helped', '--quiet')
        kills.learner++
      }
    }
    for (const each of [actor, ...helpers]) expect(await each.ended, each.text()).toBe(0)
    expect(helpers.map(({ text }) => Number(/(\d+) shares/.exec(text())?.[1]))).not.toContain(0)
    expect(kills.helpers).toBeGreaterThan(1)
    expect(await recorded('helped')).toEqual(await recorded('one'))
    const checkpoints = await readdir(join(folder, 'one/checkpoints'))
    for (const name of ['one', 'helped']) expect(await readdir(join(folder, name, 'checkpoints'))).toEqual(checkpoints)
    const [weights, theirs] = await Promise.all(
      ['one', 'helped'].map((name) =>
        readFile(join(folder, name, 'checkpoints', checkpoints.at(-1)!, 'columns.safetensors'), 'base64'),
      ),
    )
    expect(theirs).toBe(weights)
  }, 600_000)

  test.each([
    ['checkpoint', 0],
    ['update', 1],
  ])(
    'kills of actors, learner and broker change no bit, acknowledged at each %s with maxStaleness %i',
    async (acknowledge, staleness) => {
      const draw = seeded(staleness + 5)
      const settings = [...trained, `ppo.maxStaleness=${staleness}`]
      const alone = await run('train', 'CartPole-v1', ...settings, `out=alone${staleness}`)
      expect(alone.code, alone.text).toBe(0)
      const address = `${nats.address}/killed${staleness}`
      const fleet = [
        `fleet=${address}`,
        'actors=3',
        `store=${join(folder, 'store')}`,
        `acknowledge=${acknowledge}`,
        'actorSeconds=2',
      ]
      const out = `killed${staleness}`
      const actors = [1, 2, 3].map(() => start('actor', address))
      let learner = start('train', 'CartPole-v1', ...settings, ...fleet, `out=${out}`)
      const kills = { actors: 0, learner: 0, broker: 0 }
      for (let code: number | null | undefined; code !== 0; ) {
        code = await Promise.race([learner.ended, sleep(300 + 1500 * draw()).then(() => undefined)])
        if (code === 0) break
        expect(code, learner.text()).toBeUndefined()
        const chance = draw()
        if (chance < 0.6 && kills.actors < 12) {
          const i = Math.floor(draw() * actors.length)
          actors[i]!.child.kill('SIGKILL')
          actors[i] = start('actor', address)
          kills.actors++
        } else if (chance < 0.85 && kills.learner < 5) {
          learner.child.kill('SIGKILL')
          await learner.ended
          const isBegun = (await readdir(join(folder, out)).catch(() => [] as string[])).includes('config.json')
          learner = isBegun
            ? start('resume', out, '--quiet')
            : start('train', 'CartPole-v1', ...settings, ...fleet, `out=${out}`)
          kills.learner++
        } else if (kills.broker < 2) {
          await nats.restart('SIGKILL')
          kills.broker++
        }
      }
      for (const actor of actors) await actor.ended
      expect(await recorded(out)).toEqual(await recorded(`alone${staleness}`))
      expect(kills.actors).toBeGreaterThan(2)
      expect(kills.learner).toBeGreaterThan(0)
      // Of thousands of blobs the last few are left.
      const blobs = await readdir(join(folder, 'store', `killed${staleness}`), { recursive: true })
      expect(blobs.filter((name) => name.length > 60).length).toBeLessThan(40)
    },
    600_000,
  )
})
