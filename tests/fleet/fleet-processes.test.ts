/** Fleets of real processes over a real broker: by the command line, with kills. */
import { execFile } from 'node:child_process'
import { appendFile, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { type NatsServer, natsFolder, startNats, whyNoNats } from '../support/fleet-carriers.ts'
import { copyPackage, type Program, Programs } from '../support/fleet-programs.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { seeded } from '../support/tiers.ts'

const execFileText = (command: string, ...words: string[]) => promisify(execFile)(command, words)
const reason = await whyNoNats()

describe.skipIf(reason !== null)('a fleet of processes', () => {
  let nats: NatsServer
  let folder: string
  let own: string
  let programs: Programs
  const start: Programs['start'] = (...words) => programs.start(...words)
  const run: Programs['run'] = (...words) => programs.run(...words)
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
    own = await copyPackage('colonnade')
    programs = new Programs(own, folder)
  })
  afterAll(async () => {
    programs.end()
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
    const told = JSON.parse(await readFile(join(folder, 'whole/fleet.json'), 'utf8'))
    expect(told).toMatchObject({ address, environment: 'CartPole-v1', queue: { tasks: 0 } })
    expect(told.learner).toEqual({ state: 'ended', update: 40, steps: expect.any(Number) })
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

  test('waits for a broker that is not there yet, ends at a signal meanwhile, and learns once it is there', async () => {
    const broker = await startNats()
    await broker.end()
    const address = `${broker.address}/early`
    const train = ['CartPole-v1', ...trained, `fleet=${address}`, 'actors=1', `store=${join(folder, 'store')}`]
    const begin = () => [start('train', ...train, 'out=early', 'ifExists=resume'), start('actor', address)]
    const waits = async (programs: Program[]) => {
      for (const { text } of programs) {
        const message = `waits for the NATS server at ${broker.address} (`
        await expect.poll(text, { timeout: 60_000, interval: 200 }).toContain(message)
      }
    }
    const ended = begin()
    await waits(ended)
    for (const { child } of ended) child.kill('SIGTERM')
    for (const each of ended) expect(await each.ended, each.text()).toBe(143)
    const begun = begin()
    await waits(begun)
    await broker.restart('SIGTERM')
    for (const each of begun) expect(await each.ended, each.text()).toBe(0)
    expect((await run('fleet', `${address}s`)).text).toContain('which does not exist')
    await broker.end()
    expect((await run('fleet', address)).text).toContain('expected a NATS server that can be reached')
  })

  test('ends at a signal while the broker is away, with a checkpoint', async () => {
    const broker = await startNats()
    const address = `${broker.address}/gone`
    const fleet = [`fleet=${address}`, 'actors=2', `store=${join(folder, 'store')}`]
    const learner = start('train', 'CartPole-v1', 'totalSteps=100000000', 'checkpointEvery=5', ...fleet, 'out=gone')
    const actor = start('actor', address)
    const saved = () => readdir(join(folder, 'gone/checkpoints')).catch(() => [])
    await expect.poll(async () => (await saved()).length, { timeout: 60_000, interval: 200 }).toBeGreaterThan(0)
    await broker.end()
    for (const { child } of [learner, actor]) child.kill('SIGTERM')
    expect(await learner.ended, learner.text()).toBe(143)
    expect(await actor.ended, actor.text()).toBe(143)
    expect(actor.text()).not.toMatch(/\n +at /)
  }, 60_000)

  test('helpers that are killed during gradients change no bit, and a learner that is killed finds them again', async () => {
    const draw = seeded(3)
    const settings = [...trained, 'ppo.numMinibatches=1', 'numLanes=16'] // Gradients of 8 blocks.
    const alone = await run('train', 'CartPole-v1', ...settings, 'out=one')
    expect(alone.code, alone.text).toBe(0)
    const address = `${nats.address}/helped`
    const fleet = [`fleet=${address}`, 'actors=1', `store=${join(folder, 'store')}`, 'learners=4', 'actorSeconds=2']
    const kills = await programs.help(address, 'helped', ['CartPole-v1', ...settings, ...fleet], draw)
    console.warn(`killed: ${JSON.stringify(kills)}`)
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
      await programs.survive(nats, address, out, ['CartPole-v1', ...settings, ...fleet], draw)
      expect(await recorded(out)).toEqual(await recorded(`alone${staleness}`))
      // Of thousands of blobs the last few are left.
      const blobs = await readdir(join(folder, 'store', `killed${staleness}`), { recursive: true })
      expect(blobs.filter((name) => name.length > 60).length).toBeLessThan(40)
    },
    600_000,
  )

  test('actors with other code, or of another version, are refused; the run goes on by the right ones', async () => {
    const environment = (bonus: number) => `import { defineEnvironment, box, discrete } from 'colonnade'
export const walk = defineEnvironment({
  id: 'Walk-v0', module: import.meta.url, settings: {}, state: () => ({ at: 'f32' }),
  make: () => ({
    observationSpace: box({ low: -9, high: 9, shape: [1] }), actionSpace: discrete(2), maxEpisodeSteps: 8, returnThreshold: null,
    reset({ state, observation }, rows, count) { for (let i = 0; i < count; i++) state.at[rows[i]] = observation[rows[i]] = 0 },
    step({ state, observation, action, reward }, from, to) {
      for (let n = from; n < to; n++) { state.at[n] += 2 * action[n] - 1; observation[n] = state.at[n]; reward[n] = state.at[n] + ${bonus} }
    },
  }),
})
`
    for (const [place, bonus] of [
      ['ours', 0],
      ['theirs', 1],
    ] as const) {
      await mkdir(join(natsFolder, place), { recursive: true })
      await writeFile(join(natsFolder, place, 'walk.mjs'), environment(bonus))
    }
    const [ours, theirs] = ['ours', 'theirs'].map((place) => join(natsFolder, place, 'walk.mjs'))
    const address = `${nats.address}/code`
    const fleet = [`fleet=${address}`, 'actors=2', `store=${join(folder, 'store')}`]
    const learner = start('train', ours!, ...trained, ...fleet, 'out=code')
    await expect.poll(async () => (await run('fleet', address)).code, { timeout: 60_000, interval: 500 }).toBe(0)
    const other = await run('actor', address, `modules=${theirs}`)
    expect(other.text).toMatch(
      /modules: got .*theirs\/walk\.mjs with other code than the learner's, expected modules=…\/walk\.mjs/,
    )
    const none = await run('actor', address)
    expect(none.text).toContain('modules: got no walk.mjs among the allowed modules')
    const former = join(natsFolder, 'node_modules/colonnade-former')
    await cp(own, former, { recursive: true })
    await writeFile(join(former, 'dist/src/base/version.js'), "export const VERSION = '0.0.9'\n")
    const outdated = await run(join(former, 'dist/src/cli/main.js'), 'actor', address, `modules=${ours}`)
    expect(outdated.text).toMatch(/version of the actor: got 0\.0\.9, expected .*, as the learner's/)
    expect([other.code, none.code, outdated.code]).toEqual([1, 1, 1])
    const right = start('actor', address, `modules=${ours}`)
    expect(await learner.ended, learner.text()).toBe(0)
    expect(await right.ended, right.text()).toBe(0)
  })

  test('40 kills of actors, 20 of the learner, 5 of the broker, a partition, a slow actor, a late one and a full store change no row', async () => {
    const draw = seeded(32)
    // It goes on until all faults have come, however fast it is; each comes some updates after the one before.
    const settings = [
      'totalSteps=100000000',
      'seed=2',
      'ppo.numSteps=16',
      'checkpointEvery=4',
      'rollouts=all',
      '--quiet',
    ]
    const proxy = await pausable(Number(new URL(nats.address).port))
    const [address, behind] = [`${nats.address}/faults`, `nats://127.0.0.1:${proxy.port}/faults`]
    // A file system of its own can be full, but only root can mount one.
    const small = join(folder, 'small')
    await mkdir(small)
    const isMounted = await execFileText('mount', '-t', 'tmpfs', '-o', 'size=8m', 'none', small).then(
      () => true,
      () => false,
    )
    if (isMounted) onTestFinished(async () => void (await execFileText('umount', '-l', small)))
    else console.warn('SKIPPED: a full store, for no file system can be mounted here')
    const fleet = [`fleet=${address}`, 'actors=4', `store=${small}`, 'actorSeconds=2']
    const actors = [1, 2, 3].map(() => start('actor', address, 'stay=true'))
    const far = start('actor', behind, 'stay=true')
    let learner = start('train', 'CartPole-v1', ...settings, ...fleet, 'out=faults')
    const begun = performance.now()
    const resident = async () =>
      Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${far.child.pid}/status`, 'utf8'))![1]) / 1024
    const sizes: number[] = []
    let late: Program | null = null
    const faults: Record<string, () => Promise<void>> = {
      async actor() {
        const i = Math.floor(draw() * actors.length)
        actors[i]!.child.kill('SIGKILL')
        await actors[i]!.ended
        actors[i] = start('actor', address, 'stay=true')
      },
      async learner() {
        learner.child.kill('SIGKILL')
        await learner.ended
        learner = start('resume', 'faults', '--quiet')
      },
      broker: () => nats.restart('SIGKILL'),
      async partition() {
        proxy.pause()
        await sleep(10_000)
        proxy.resume()
      },
      async slow() {
        const [slow] = actors
        slow!.child.kill('SIGSTOP')
        await sleep(6000)
        slow!.child.kill('SIGCONT')
      },
      async late() {
        late = start('actor', address, 'stay=true')
      },
      async full() {
        if (!isMounted) return
        const filler = join(small, 'filler')
        await writeFile(filler, '')
        // The first to notice is who puts next: the learner or an actor. Blobs that are removed meanwhile make room, which is filled too.
        const texts = async () => {
          await appendFile(filler, Buffer.alloc(2 ** 24)).catch(() => {})
          return [learner, ...actors, far].map(({ text }) => text()).join('\n')
        }
        await expect.poll(texts, { timeout: 120_000, interval: 200 }).toContain('a disk that is full')
        await rm(filler)
      },
    }
    const counts = { actor: 40, learner: 20, broker: 5, partition: 1, slow: 1, late: 1, full: 1 }
    const order = Object.entries(counts).flatMap(([name, count]) => Array<string>(count).fill(name))
    for (let i = order.length - 1; i > 0; i--) {
      const j = Math.floor(draw() * (i + 1))
      ;[order[i], order[j]] = [order[j]!, order[i]!]
    }
    const written = async (name: string) =>
      (await readdir(join(folder, name, 'rollouts')).catch(() => [])).filter((file) => file.endsWith('.arrow')).length
    let before = 0
    const goesOn = async () => {
      await expect
        .poll(
          async () => {
            expect(learner.child.exitCode, learner.text()).toBe(null)
            return written('faults')
          },
          { timeout: 300_000, interval: 100 },
        )
        .toBeGreaterThan(before + 3)
      before = await written('faults')
    }
    for (const [i, name] of order.entries()) {
      await goesOn()
      await faults[name]!()
      if (i % 10 === 0) sizes.push(await resident())
    }
    await goesOn()
    await run('fleet', address, 'order=stop')
    expect(await learner.ended, learner.text()).toBe(0)
    sizes.push(await resident())
    console.warn(
      `faults: ${order.length} in ${before} updates, ${((performance.now() - begun) / 1000).toFixed(0)} s; an actor's MB: ${sizes.map(Math.round)}`,
    )
    await run('fleet', address, 'order=drain')
    for (const actor of [...actors, far, late!]) expect(await actor.ended, actor.text()).toBe(0)
    const shared = await recorded('faults')
    const alone = start('train', 'CartPole-v1', ...settings, 'out=alone-faults')
    await expect.poll(() => written('alone-faults'), { timeout: 300_000, interval: 100 }).toBeGreaterThan(shared.length)
    alone.child.kill('SIGTERM')
    expect(await alone.ended, alone.text()).toBe(143)
    expect(shared).toEqual((await recorded('alone-faults')).slice(0, shared.length))
    expect(far.text()).toMatch(/\n[1-9]\d* parts of rollouts/)
    expect(late!.text()).toMatch(/\n[1-9]\d* parts of rollouts/)
    expect(sizes.at(-1)).toBeLessThan(1.5 * sizes[1]!)
    const blobs = (await readdir(join(small, 'faults'), { recursive: true })).filter((name) => name.length > 60)
    expect(blobs.length).toBeLessThan(60)
    proxy.close()
  }, 1_500_000)
})

/** A proxy of a port of this machine that can stop forwarding without closing a connection. */
async function pausable(port: number) {
  let isPaused = false
  const sockets = new Set<Socket>()
  const server = createServer((near) => {
    const far = connect(port, '127.0.0.1')
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from)
      from.on('data', (chunk) => to.write(chunk))
      from.on('error', () => to.destroy())
      from.on('close', () => {
        sockets.delete(from)
        to.destroy()
      })
      if (isPaused) from.pause()
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const all = (verb: 'pause' | 'resume') => {
    isPaused = verb === 'pause'
    for (const socket of sockets) socket[verb]()
  }
  return {
    port: (server.address() as AddressInfo).port,
    pause: () => all('pause'),
    resume: () => all('resume'),
    close() {
      server.close()
      for (const socket of sockets) socket.destroy()
    },
  }
}
