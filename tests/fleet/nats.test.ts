/** The contract of buses over a real nats-server, and what only a server can do. */
import { expect, test } from 'vitest'
import { busSuite } from '../support/bus-suite.ts'
import { joinNats, natsBus, startNats, whyNoNats } from '../support/fleet-carriers.ts'

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

test.skipIf(reason !== null)(
  'a server without JetStream, one that refuses, and one that is not there are told apart',
  async () => {
    await expect(joinNats('nats://127.0.0.1:9', 'run')).rejects.toThrow('expected a NATS server that can be reached')
    const closed = await startNats('authorization { user: fleet, password: "a secret of the server" }')
    await expect(joinNats(closed.address, 'run')).rejects.toThrow(/Authorization/i)
    await closed.end()
  },
)
