/** The contract of buses over a real nats-server, and what only a server can do. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, expect, test, vi } from 'vitest'
import { natsPermissions } from '../../src/fleet/bus/nats-permissions.ts'
import { busSuite } from '../support/bus-suite.ts'
import { certificate } from '../support/certificate.ts'
import { joinNats, natsBus, startNats, whyNoNats } from '../support/fleet-carriers.ts'
import { temporaryFolder } from '../support/temporary.ts'

const reason = await whyNoNats()
if (reason === null) busSuite(natsBus)

test.skipIf(reason !== null)('a server that is killed and started again has lost nothing', async () => {
  const nats = await startNats()
  const [owner, taker] = [await joinNats(nats.address, 'run'), await joinNats(nats.address, 'run')]
  try {
    const ours = await owner.queue('work', { seconds: 60, isOwner: true })
    const theirs = await taker.queue('work', { seconds: 60, isOwner: false })
    for (let n = 0; n < 100; n++) await ours.put(`item ${n}`, { n })
    const before = [await theirs.take({ seconds: 1 }), await theirs.take({ seconds: 1 })]
    await before[0]!.acknowledge()
    const putting = (async () => {
      for (let n = 100; n < 110; n++) await ours.put(`item ${n}`, { n })
    })()
    await nats.restart('SIGKILL')
    await putting
    await before[1]!.acknowledge()
    const rest: unknown[] = []
    for (let item = await theirs.take({ seconds: 2 }); item !== null; item = await theirs.take({ seconds: 2 })) {
      rest.push(item.value.n)
      await item.acknowledge()
    }
    // Acknowledgments shortly before the kill may be lost, items never.
    expect(new Set([0, 1, ...(rest as number[])]).size).toBe(110)
    expect(rest.length).toBeLessThanOrEqual(110)
  } finally {
    await owner.close()
    await taker.close()
    await nats.end()
  }
})

test.skipIf(reason !== null)('who takes while a server ends in order waits until it is there again', async () => {
  const nats = await startNats()
  const [owner, taker] = [await joinNats(nats.address, 'run'), await joinNats(nats.address, 'run')]
  const over = new AbortController()
  try {
    const names = ['a', 'b', 'c', 'd']
    const ours = await Promise.all(names.map((name) => owner.queue(name, { seconds: 60, isOwner: true })))
    const theirs = await Promise.all(names.map((name) => taker.queue(name, { seconds: 60, isOwner: false })))
    let [put, taken] = [0, 0]
    const putting = ours.map(async (queue) => {
      while (!over.signal.aborted) await queue.put(`item ${put++}`, {})
    })
    const taking = theirs.map(async (queue) => {
      while (!over.signal.aborted) {
        const item = await queue.take({ seconds: 5, signal: over.signal })
        await item?.acknowledge()
        if (item !== null) taken++
      }
    })
    const working = Promise.all([...putting, ...taking])
    for (let restarts = 0; restarts < 2; restarts++) {
      const before = taken
      await Promise.race([working, expect.poll(() => taken, { timeout: 20_000 }).toBeGreaterThan(before)])
      await nats.restart('SIGTERM')
    }
    over.abort()
    await working
  } finally {
    over.abort()
    for (const each of [owner, taker]) await each.close()
    await nats.end()
  }
})

test.skipIf(reason !== null)(
  'a server without JetStream, one that refuses, and one that is not there are told apart',
  async () => {
    await expect(joinNats('nats://127.0.0.1:9', 'run')).rejects.toThrow('expected a NATS server that can be reached')
    const closed = await startNats('authorization { user: fleet, password: "a secret of the server" }')
    await expect(joinNats(closed.address, 'run')).rejects.toThrow(/Authorization/i)
    await closed.end()
  },
)

afterEach(() => vi.unstubAllEnvs())

test.skipIf(reason !== null)('an actor has the permissions of an actor, and nobody those of another run', async () => {
  vi.stubEnv('LEARNER_PASSWORD', 'learner-of-the-test')
  vi.stubEnv('ACTOR_PASSWORD', 'actor-of-the-test')
  const nats = await startNats(natsPermissions('cart'))
  const enter = (user: string, password: string, run: string) => {
    vi.stubEnv('COLONNADE_NATS_USER', user)
    vi.stubEnv('COLONNADE_NATS_PASSWORD', password)
    return joinNats(nats.address, run)
  }
  await expect(enter('actor', 'a wrong one', 'cart')).rejects.toThrow(/^((?!a wrong one).)*$/s)
  const learner = await enter('learner', 'learner-of-the-test', 'cart')
  const actor = await enter('actor', 'actor-of-the-test', 'cart')
  const stranger = await enter('learner', 'learner-of-the-test', 'pole')
  try {
    for (const name of ['leases', 'actors', 'run']) await learner.values(name, { isOwner: true, seconds: 10 })
    const owned = { isOwner: true, seconds: 10 }
    const [tasks, results] = [await learner.queue('tasks', owned), await learner.queue('results', owned)]
    await (await learner.values('run', owned)).put('description', { n: 1 })
    await tasks.put('a part', { n: 2 })
    const entered = { isOwner: false, seconds: 10 }
    const theirs = [await actor.queue('tasks', entered), await actor.queue('results', entered)]
    const item = await theirs[0]!.take({ seconds: 2 })
    await theirs[1]!.put('a result', { n: 3 })
    await item!.acknowledge()
    expect([await tasks.size(), await results.size()]).toEqual([0, 1])
    const run = await actor.values('run', entered)
    expect((await run.get('description'))!.value).toEqual({ n: 1 })
    const seen: string[] = []
    const stop = await run.watch((key) => seen.push(key))
    await expect.poll(() => seen).toEqual(['description'])
    stop()
    await (await actor.values('actors', entered)).put('itself', { n: 4 })
    const refused = 'credentials that may do that'
    await expect(theirs[0]!.put('its own part', {})).rejects.toThrow(refused)
    await expect(theirs[0]!.empty()).rejects.toThrow(refused)
    await expect(theirs[1]!.empty()).rejects.toThrow(refused)
    await expect(run.put('description', {})).rejects.toThrow(refused)
    await expect(actor.values('leases', entered)).rejects.toThrow(refused)
    await expect(stranger.queue('tasks', owned)).rejects.toThrow(refused)
    expect(await theirs[1]!.take({ seconds: 1 })).toBeNull()
  } finally {
    for (const each of [learner, actor, stranger]) await each.close()
    await nats.end()
  }
})

test.skipIf(reason !== null)('TLS is asked for by the address, and an unknown certificate is refused', async () => {
  const folder = await temporaryFolder()
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
  await writeFile(cert, certificate.cert)
  await writeFile(key, certificate.key)
  const nats = await startNats(`tls { cert_file: "${cert}", key_file: "${key}" }`)
  const address = nats.address.replace('nats://', 'tls://')
  try {
    await expect(joinNats(address, 'run')).rejects.toThrow(/certificate/)
    vi.stubEnv('COLONNADE_NATS_CA', cert)
    const bus = await joinNats(address, 'run')
    expect(await (await bus.values('run', { isOwner: true })).put('a', {})).toBe(1)
    await bus.close()
  } finally {
    await nats.end()
  }
})
