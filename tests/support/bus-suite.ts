/** The contract of buses, for every carrier. */
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Bus, Item, Message } from '../../src/fleet/bus/bus.ts'
import { holdLease } from '../../src/fleet/bus/lease.ts'
import type { Carrier } from './fleet-carriers.ts'

const numbers = (items: readonly (Item | null)[]) => items.map((item) => item?.value.n)

export function busSuite({ name, open }: Carrier<Bus>): void {
  describe(`a bus by ${name}`, () => {
    let place: Awaited<ReturnType<typeof open>>
    let [one, other]: Bus[] = []
    beforeAll(async () => {
      place = await open()
      one = await place.join()
      other = await place.join()
    })
    afterAll(() => place.close())
    /** A queue of the owner, and the same of another client. */
    const queues = async (queue: string, seconds = 60) => [
      await one!.queue(queue, { seconds, isOwner: true }),
      await other!.queue(queue, { seconds, isOwner: false }),
    ]

    test('a queue gives each item to one taker, in order, until it is acknowledged', async () => {
      const [ours, theirs] = await queues('order')
      for (let n = 0; n < 4; n++) expect(await ours!.put(`item ${n}`, { n })).toBe(true)
      const taken = [await ours!.take({ seconds: 1 }), await theirs!.take({ seconds: 1 })]
      taken.push(await theirs!.take({ seconds: 1 }), await ours!.take({ seconds: 1 }))
      expect(numbers(taken)).toEqual([0, 1, 2, 3])
      expect(taken.map((item) => item!.deliveries)).toEqual([1, 1, 1, 1])
      expect(await theirs!.take({ seconds: 0.1 })).toBeNull()
      expect(await ours!.size()).toBe(4)
      for (const item of taken) await item!.acknowledge()
      expect(await ours!.size()).toBe(0)
    })

    test('an id is put once', async () => {
      const [ours, theirs] = await queues('ids')
      expect(await ours!.put('same', { n: 0 })).toBe(true)
      expect(await theirs!.put('same', { n: 1 })).toBe(false)
      await (await theirs!.take({ seconds: 1 }))!.acknowledge()
      expect(await theirs!.put('same', { n: 2 })).toBe(false)
      expect(await ours!.take({ seconds: 0.1 })).toBeNull()
    })

    test('an item of which nothing is heard goes to another; one that is extended or released does not, or at once', async () => {
      const [ours, theirs] = await queues('late', 2)
      await ours!.put('dead', { n: 0 })
      await ours!.put('slow', { n: 1 })
      await ours!.take({ seconds: 1 })
      const slow = await ours!.take({ seconds: 1 })
      for (let i = 0; i < 3; i++) {
        await sleep(900)
        slow!.extend()
      }
      const again = await theirs!.take({ seconds: 3 })
      expect([again!.value.n, again!.deliveries]).toEqual([0, 2])
      slow!.release()
      expect((await theirs!.take({ seconds: 1 }))!.value.n).toBe(1)
      await again!.acknowledge()
    })

    test('an owner takes back what a former one had taken, and empties the queue', async () => {
      const [ours, theirs] = await queues('former')
      await ours!.put('held', { n: 0 })
      expect((await ours!.take({ seconds: 1 }))!.value.n).toBe(0)
      expect(await theirs!.take({ seconds: 0.1 })).toBeNull()
      await ours!.reclaim()
      expect((await theirs!.take({ seconds: 2 }))!.value.n).toBe(0)
      await ours!.empty()
      expect(await ours!.size()).toBe(0)
    })

    test('a taker who waits gets an item when it comes, and stops at its signal', async () => {
      const [ours, theirs] = await queues('waits')
      const waiting = theirs!.take({ seconds: 5 })
      await sleep(100)
      await ours!.put('late', { n: 7 })
      expect((await waiting)!.value.n).toBe(7)
      const stop = new AbortController()
      const stopped = theirs!.take({ seconds: 60, signal: stop.signal })
      stop.abort()
      expect(await stopped).toBeNull()
    })

    test('values are the newest by key; an exchange is refused at another revision', async () => {
      const [ours, theirs] = [
        await one!.values('state', { isOwner: true }),
        await other!.values('state', { isOwner: false }),
      ]
      const first = await ours.put('a', { n: 1 })
      expect(await theirs.get('a')).toEqual({ value: { n: 1 }, revision: first })
      expect(await theirs.exchange('a', { n: 2 }, null)).toBeNull()
      const second = await theirs.exchange('a', { n: 2 }, first)
      expect(second).toBeGreaterThan(first)
      expect(await ours.exchange('a', { n: 3 }, first)).toBeNull()
      expect(await ours.exchange('b.c', { n: 4 }, null)).not.toBeNull()
      expect((await ours.keys()).toSorted()).toEqual(['a', 'b.c'])
      await ours.remove('a')
      expect(await theirs.get('a')).toBeNull()
      expect(await theirs.keys()).toEqual(['b.c'])
      expect(await theirs.exchange('a', { n: 5 }, null)).not.toBeNull()
      await expect(ours.put('two words', {})).rejects.toThrow('key: got "two words"')
    })

    test('a watcher sees what is there, and each change', async () => {
      const [ours, theirs] = [
        await one!.values('seen', { isOwner: true }),
        await other!.values('seen', { isOwner: false }),
      ]
      await ours.put('a', { n: 1 })
      const seen: [string, Message | null][] = []
      const stop = await theirs.watch((key, value) => seen.push([key, value]))
      await ours.put('b', { n: 2 })
      await ours.put('a', { n: 3 })
      await ours.remove('b')
      await expect.poll(() => seen.length, { timeout: 5000 }).toBe(4)
      expect(seen).toEqual([
        ['a', { n: 1 }],
        ['b', { n: 2 }],
        ['a', { n: 3 }],
        ['b', null],
      ])
      stop()
    })

    test('a lease has one holder; one that was killed loses it in time', async () => {
      const values = await one!.values('leases', { isOwner: true, seconds: 2 })
      const lost: string[] = []
      const lease = { key: 'learner', seconds: 2, onLost: (error: Error) => lost.push(error.message) }
      const held = await holdLease({ ...lease, values, owner: 'first' })
      const others = await other!.values('leases', { isOwner: false })
      await expect(holdLease({ ...lease, values: others, owner: 'second' })).rejects.toThrow(
        'learner: got a name that first already holds, expected another name, or the end of that process',
      )
      await held.end()
      await others.put('learner', { owner: 'killed' }) // Nobody renews it.
      const began = performance.now()
      const second = await holdLease({ ...lease, values: others, owner: 'second' })
      expect(performance.now() - began).toBeGreaterThan(1000)
      expect(lost).toEqual([])
      await values.put('learner', { owner: 'a thief' })
      await expect.poll(() => lost, { timeout: 3000 }).toEqual([expect.stringContaining('a thief')])
      await second.end()
    })

    test('what nobody has made is refused', async () => {
      const closed = { isOwner: false, seconds: 1 }
      await expect(one!.queue('none', closed)).rejects.toThrow('which does not exist')
      await expect(one!.values('none', closed)).rejects.toThrow('which does not exist')
      await expect(one!.queue('two words', closed)).rejects.toThrow('queue: got "two words"')
    })
  })
}
