import { describe, expect, it } from 'vitest'
import { Admission, type AdmissionSettings, RolloutStarvedError, type Ticket } from '../../src/fleet/admission.ts'
import * as fc from '../support/properties.ts'

/** Begins all that may begin. */
function beginAll(admission: Admission): Ticket[] {
  const tickets: Ticket[] = []
  for (let ticket = admission.begin(); ticket !== null; ticket = admission.begin()) tickets.push(ticket)
  return tickets
}

const keep = { keep: true }

describe('An admission', () => {
  it('begins as many groups as staleness has room for, member by member', () => {
    const settings = { groupsPerBatch: 2, groupSize: 3 }
    for (const maxStaleness of [0, 1, 4]) {
      const tickets = beginAll(new Admission({ ...settings, maxStaleness }))
      expect(tickets.map(({ group }) => group)).toEqual(
        Array.from({ length: 6 * (maxStaleness + 1) }, (_, i) => Math.floor(i / 3)),
      )
      expect(tickets.map(({ member }) => member)).toEqual(tickets.map((_, i) => i % 3))
    }
    expect(beginAll(new Admission({ ...settings, maxStaleness: 4, maxConcurrent: 3 }))).toHaveLength(9)
    expect(beginAll(new Admission({ ...settings, overSampling: 1.5 }))).toHaveLength(9)
  })

  it('begins no further ahead of the update than it may, however stale a group may be', () => {
    const settings = { groupsPerBatch: 2, groupSize: 1, maxStaleness: Number.POSITIVE_INFINITY, ahead: 0 }
    const admission = new Admission({ ...settings, overSampling: 2 })
    for (const ticket of beginAll(admission)) {
      admission.finish(ticket)
      admission.judge(ticket.group, keep)
    }
    expect(admission.take()!.groups).toEqual([0, 1])
    expect(beginAll(admission)).toEqual([])
    expect([admission.advance(), beginAll(admission)]).toEqual([[], []]) // Two wait: the second batch is there.
    expect(admission.take()).toEqual({ groups: [2, 3], staleness: [1, 1], drops: {} })
    expect(() => new Admission({ ...settings, ahead: 2, maxStaleness: 1 })).toThrow(/ahead: got 2, expected at most/)
    expect(() => new Admission({ ...settings, ahead: -1 })).toThrow(/ahead: got -1/)
    expect(() => new Admission({ groupsPerBatch: 2, groupSize: 1, maxStaleness: Number.POSITIVE_INFINITY })).toThrow(
      /maxStaleness: got Infinity/,
    )
  })

  it('drops all that is under way or waits, which counts against nobody, and begins others', () => {
    const admission = new Admission({ groupsPerBatch: 2, groupSize: 1, maxStaleness: 1, dropsMax: 0 })
    const tickets = beginAll(admission)
    for (const group of [0, 1]) {
      expect(admission.isReady).toBe(false)
      admission.finish(tickets[group]!)
      admission.judge(group, keep)
    }
    expect(admission.isReady).toBe(true)
    admission.dropAll('unproved')
    expect([admission.isReady, admission.take(), admission.drops]).toEqual([false, null, { unproved: 4 }])
    expect(admission.finish(tickets[2]!)).toBe(false) // Its group is gone.
    expect(beginAll(admission).map(({ group }) => group)).toEqual([4, 5, 6, 7])
  })

  it('delivers a batch once all groups before its last one are settled, and by number whoever is done first', () => {
    const admission = new Admission({ groupsPerBatch: 2, groupSize: 1, maxStaleness: 1 })
    const tickets = beginAll(admission)
    for (const group of [3, 1, 2]) {
      expect(admission.finish(tickets[group]!)).toBe(true)
      admission.judge(group, keep)
    }
    expect(admission.take()).toBeNull()
    admission.finish(tickets[0]!)
    admission.judge(0, { keep: false, reason: 'zero_std' })
    expect(admission.take()).toEqual({ groups: [1, 2], staleness: [0, 0], drops: { zero_std: 1 } })
    expect(admission.take()).toBeNull()
    expect(admission.drops).toEqual({ zero_std: 1 })
    expect(admission.advance()).toEqual([])
    const [next] = beginAll(admission)
    expect(next).toEqual({ group: 4, member: 0, attempt: 0 })
    admission.finish(next!)
    admission.judge(4, keep)
    expect(admission.take()).toEqual({ groups: [3, 4], staleness: [1, 0], drops: {} })
  })

  it('delivers by arrival where it is told to, and drops what has become too old', () => {
    const admission = new Admission({ groupsPerBatch: 1, groupSize: 1, overSampling: 3, order: 'arrival' })
    const tickets = beginAll(admission)
    expect(tickets).toHaveLength(3)
    for (const group of [2, 1]) {
      admission.finish(tickets[group]!)
      admission.judge(group, keep)
    }
    expect(admission.take()).toEqual({ groups: [2], staleness: [0], drops: {} })
    expect(admission.advance()).toEqual([0, 1])
    expect(admission.drops).toEqual({ stale: 2 })
    expect(admission.finish(tickets[0]!)).toBe(false) // It was under way, and nobody waits for it.
    expect(admission.waiting + admission.sampling).toBe(0)
  })

  it('samples a member that failed again, so often as it is told, and then drops its group', () => {
    const admission = new Admission({ groupsPerBatch: 1, groupSize: 2, failure: { kind: 'retry', retries: 2 } })
    const [first, second] = beginAll(admission)
    expect(admission.finish(second!)).toBe(false)
    let ticket = first!
    for (let attempt = 1; attempt <= 2; attempt++) {
      expect(admission.fail(ticket, new Error('lost'))).toBe(false)
      ticket = admission.begin()!
      expect(ticket).toEqual({ group: 0, member: 0, attempt })
    }
    expect(admission.fail(ticket, new Error('lost'))).toBe(false)
    expect(admission.drops).toEqual({ failed: 1 })
    expect(admission.begin()).toEqual({ group: 1, member: 0, attempt: 0 })
  })

  it('samples nothing more of a group that was dropped', () => {
    const admission = new Admission({ groupsPerBatch: 1, groupSize: 2, failure: { kind: 'retry', retries: 1 } })
    const [first, second] = beginAll(admission)
    admission.fail(first!, new Error('lost'))
    admission.fail(second!, new Error('lost'))
    admission.fail(admission.begin()!, new Error('lost')) // The first again; the second still waits for its turn.
    expect(admission.drops).toEqual({ failed: 1 })
    expect(beginAll(admission).map(({ group }) => group)).toEqual([1, 1])
  })

  it('goes on with fewer members while there are enough of them', () => {
    const failure = { kind: 'shrink', minMembers: 2 } as const
    const admission = new Admission({ groupsPerBatch: 2, groupSize: 3, failure })
    const tickets = beginAll(admission)
    admission.finish(tickets[0]!)
    admission.fail(tickets[1]!, new Error('lost'))
    expect(admission.finish(tickets[2]!)).toBe(true)
    admission.judge(0, keep)
    admission.fail(tickets[3]!, new Error('lost'))
    expect(admission.fail(tickets[4]!, new Error('lost'))).toBe(false)
    expect(admission.drops).toEqual({ failed: 1 })
    expect(admission.finish(tickets[5]!)).toBe(false)
  })

  it('throws what a member failed with unless it is told otherwise', () => {
    const admission = new Admission({ groupsPerBatch: 1, groupSize: 1 })
    const cause = new Error('the engine is gone')
    expect(() => admission.fail(admission.begin()!, cause)).toThrow(cause)
  })

  it('ends where filters let nothing pass, and says what they dropped since the last batch', () => {
    const admission = new Admission({ groupsPerBatch: 2, groupSize: 1, dropsMax: 3 })
    const decide = (decision: { keep: boolean; reason?: string }) => {
      const ticket = admission.begin()!
      admission.finish(ticket)
      admission.judge(ticket.group, decision)
    }
    for (const decision of [{ keep: false, reason: 'early' }, keep, keep]) decide(decision)
    expect(admission.take()?.groups).toEqual([1, 2])
    admission.advance()
    for (const reason of ['zero_std', 'zero_std', 'too_long']) decide({ keep: false, reason })
    const error = (() => {
      try {
        decide({ keep: false, reason: 'zero_std' })
      } catch (thrown) {
        return thrown as RolloutStarvedError
      }
      return undefined
    })()
    expect(error).toBeInstanceOf(RolloutStarvedError)
    expect(error!.drops).toEqual({ zero_std: 3, too_long: 1 })
    expect(error!.message).toContain('got 4 groups dropped for one update (3 zero_std, 1 too_long), expected at most 3')
  })

  it('drops groups that are not fresh when they are taken, and counts them against the limit; those that an update outdates not', () => {
    const settings = { groupsPerBatch: 2, groupSize: 1, maxStaleness: 1, overSampling: 2, dropsMax: 1 }
    const admission = new Admission({ ...settings, order: 'arrival' })
    const admit = (ticket: Ticket) => {
      admission.finish(ticket)
      admission.judge(ticket.group, keep)
    }
    const tickets = beginAll(admission)
    for (const ticket of tickets.slice(0, 3)) admit(ticket)
    const asked: number[] = []
    const isFresh = (group: number) => asked.push(group) > 0 && group !== 1
    expect(admission.take(isFresh)).toEqual({ groups: [0, 2], staleness: [0, 0], drops: { stale: 1 } })
    expect(asked).toEqual([0, 1, 0, 2])
    admission.advance()
    expect(admission.advance()).toEqual([3, 4, 5, 6, 7]) // More than the limit.
    const restored = new Admission(settings)
    restored.restore(JSON.parse(JSON.stringify(admission.saved())))
    for (const ticket of beginAll(restored).slice(0, 4)) {
      restored.finish(ticket)
      restored.judge(ticket.group, keep)
    }
    const isFirst = (group: number) => group !== 8
    expect(restored.take(isFirst)?.drops).toEqual({ stale: 6 })
    expect(() => restored.take((group) => group > 11)).not.toThrow()
  })

  it('forgives what an update outdated once: a delivery begins the count anew', () => {
    const admission = new Admission({ groupsPerBatch: 1, groupSize: 1, maxStaleness: 0, overSampling: 4, dropsMax: 1 })
    const judge = (ticket: Ticket, decision: { keep: boolean }) => {
      admission.finish(ticket)
      admission.judge(ticket.group, decision)
    }
    const tickets = beginAll(admission)
    expect(tickets).toHaveLength(4)
    judge(tickets[0]!, keep)
    expect(admission.take()?.groups).toEqual([0])
    expect(admission.advance()).toEqual([1, 2, 3]) // Three that nobody is at fault for.
    expect(admission.saved().outdatedSince).toBe(3)
    judge(admission.begin()!, keep)
    expect(admission.take()?.drops).toEqual({ stale: 3 })
    expect(admission.saved().outdatedSince).toBe(0)
    admission.advance()
    judge(admission.begin()!, { keep: false })
    expect(() => judge(admission.begin()!, { keep: false })).toThrow('got 2 groups dropped for one update')
  })

  it('begins no groups for updates that there are not to be', () => {
    const admission = new Admission({ groupsPerBatch: 2, groupSize: 1, maxStaleness: 3, updates: 2 })
    const tickets = beginAll(admission)
    expect(tickets).toHaveLength(4)
    for (const ticket of tickets) {
      admission.finish(ticket)
      admission.judge(ticket.group, keep)
    }
    expect(admission.take()?.groups).toEqual([0, 1])
    admission.advance()
    expect(admission.begin()).toBeNull()
    expect(admission.take()?.groups).toEqual([2, 3])
  })

  it('takes each ticket and each judgment once', () => {
    const admission = new Admission({ groupsPerBatch: 1, groupSize: 1 })
    const ticket = admission.begin()!
    expect(() => admission.judge(0, keep)).toThrow('0, which is not complete')
    admission.finish(ticket)
    expect(() => admission.finish(ticket)).toThrow('member 0 of group 0, attempt 0, which is not in progress')
    admission.judge(0, keep)
    expect(() => admission.judge(0, keep)).toThrow('0, which is not complete')
  })

  it('refuses wrong settings, each by its name', () => {
    const settings = { groupsPerBatch: 1, groupSize: 2 }
    const wrong: [Partial<Record<keyof AdmissionSettings, unknown>>, string][] = [
      [{ groupsPerBatch: 0 }, 'groupsPerBatch: got 0, expected a whole number ≥ 1'],
      [{ groupSize: 1.5 }, 'groupSize: got 1.5, expected a whole number ≥ 1'],
      [{ maxStaleness: -1 }, 'maxStaleness: got -1, expected a whole number ≥ 0'],
      [{ maxConcurrent: 0 }, 'maxConcurrent: got 0, expected a whole number ≥ 1'],
      [{ dropsMax: Number.NaN }, 'dropsMax: got NaN, expected a whole number ≥ 0'],
      [{ overSampling: 0.9 }, 'overSampling: got 0.9, expected a number ≥ 1'],
      [{ order: 'random' }, 'order: got "random", expected one of number, arrival'],
      [{ failure: { kind: 'retry', retries: 0 } }, 'failure.retries: got 0, expected a whole number ≥ 1'],
      [{ failure: { kind: 'shrink', minMembers: 3 } }, 'failure.minMembers: got 3, expected at most the group size, 2'],
      [{ failure: { kind: 'ignore' } }, 'failure.kind: got "ignore", expected one of throw, retry, shrink'],
    ]
    for (const [change, message] of wrong) {
      expect(() => new Admission({ ...settings, ...change } as AdmissionSettings)).toThrow(message)
    }
  })
})

/** What becomes of groups, by their number and not by when they are done. */
interface World {
  readonly settings: AdmissionSettings
  /** Whether the judge keeps each group. */
  readonly kept: readonly boolean[]
  /** Of each group how many attempts of its first member fail. */
  readonly failures: readonly number[]
  /** Choices among what could happen next. */
  readonly choices: readonly number[]
}

const worlds = fc.record({
  settings: fc.record({
    groupsPerBatch: fc.integer({ min: 1, max: 4 }),
    groupSize: fc.integer({ min: 1, max: 3 }),
    maxStaleness: fc.integer({ min: 0, max: 4 }),
    maxConcurrent: fc.constantFrom(1, 3, 7, Number.POSITIVE_INFINITY),
    overSampling: fc.constantFrom(1, 1, 1.5, 3),
    order: fc.constantFrom('number' as const, 'number' as const, 'arrival' as const),
    failure: fc.constantFrom<NonNullable<AdmissionSettings['failure']>[]>(
      { kind: 'retry', retries: 1 },
      { kind: 'shrink', minMembers: 1 },
    ),
  }),
  kept: fc.array(fc.boolean(), { minLength: 7, maxLength: 7 }),
  failures: fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 5, maxLength: 5 }),
  choices: fc.array(fc.nat(1000), { minLength: 40, maxLength: 200 }),
}) satisfies fc.Arbitrary<World>

const isKept = ({ kept }: World, group: number) => kept[group % kept.length]! || group % 5 === 0
const failuresOf = ({ failures }: World, group: number) => failures[group % failures.length]!

/** Whether a group comes through: what is delivered, worked out without an admission. */
function survives(world: World, group: number): boolean {
  const { failure, groupSize } = world.settings
  if (!isKept(world, group)) return false
  if (failure!.kind === 'retry') return failuresOf(world, group) <= 1
  return failuresOf(world, group) === 0 || groupSize > 1
}

/** Lets things happen in an order that the choices say, with a kill now and then; returns the batches and how stale they were. */
function play(world: World, kills: boolean) {
  let admission = new Admission(world.settings)
  let underWay: Ticket[] = []
  const batches: { groups: readonly number[]; staleness: readonly number[] }[] = []
  let most = 0
  const act = (choice: number) => {
    if (kills && choice % 17 === 0) {
      const saved = JSON.parse(JSON.stringify(admission.saved()))
      admission = new Admission(world.settings)
      admission.restore(saved)
      underWay = [] // Who was under way is begun again.
      return
    }
    if (choice % 3 === 0) {
      const ticket = admission.begin()
      if (ticket !== null) underWay.push(ticket)
    } else if (underWay.length > 0) {
      const [ticket] = underWay.splice(choice % underWay.length, 1)
      const fails = ticket!.member === 0 && ticket!.attempt < failuresOf(world, ticket!.group)
      const isWhole = fails ? admission.fail(ticket!, new Error('lost')) : admission.finish(ticket!)
      if (isWhole) admission.judge(ticket!.group, { keep: isKept(world, ticket!.group) })
    }
    most = Math.max(most, admission.sampling + admission.waiting)
    if (choice % 4 > 0) return
    const delivery = admission.take()
    if (delivery === null) return
    batches.push(delivery)
    admission.advance()
  }
  for (const choice of world.choices) act(choice)
  for (let i = 0; i < 5000 && batches.length < 4; i++) for (const choice of [3, 4, 8]) act(choice)
  return { batches, most, drops: admission.drops }
}

describe('Whatever happens in whatever order', () => {
  it('each group is delivered once, in whole batches, never staler than permitted, and the loop goes on', () => {
    fc.assert(
      fc.property(worlds, fc.boolean(), (world, kills) => {
        const { batches, most, drops } = play(world, kills)
        const { groupsPerBatch, maxStaleness, overSampling, order } = world.settings
        const isStarved = !Array.from({ length: 35 }, (_, group) => survives(world, group)).includes(true)
        expect(isStarved || batches.length >= 4).toBe(true)
        const groups = batches.flatMap((batch) => batch.groups)
        expect(new Set(groups).size).toBe(groups.length)
        expect(groups.every((group) => survives(world, group))).toBe(true)
        for (const batch of batches) {
          expect(batch.groups).toHaveLength(groupsPerBatch)
          expect(batch.groups).toEqual(batch.groups.toSorted((a, b) => a - b))
          expect(Math.max(...batch.staleness)).toBeLessThanOrEqual(maxStaleness)
        }
        expect(most).toBeLessThanOrEqual(Math.ceil(overSampling * (maxStaleness + 1) * groupsPerBatch))
        if (order === 'arrival' || overSampling > 1) return
        expect(drops.stale).toBeUndefined()
        const expected: number[] = []
        for (let group = 0; expected.length < groups.length; group++) if (survives(world, group)) expected.push(group)
        expect(groups).toEqual(expected)
      }),
      { numRuns: 500 },
    )
  })
})
