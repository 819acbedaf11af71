import { describe, expect, it } from 'vitest'
import { Admission, type AdmissionSettings, type Ticket } from '../../src/fleet/admission.ts'
import { type LoopOptions, type LoopParts, runLoop, type SavedLoop } from '../../src/fleet/loop.ts'
import { VirtualTime } from '../../src/fleet/time.ts'
import * as fc from '../support/properties.ts'

/** A member: whose it is, and with which version its sampling began. */
type Member = readonly [group: number, member: number, version: number]

interface Learned {
  readonly version: number
  readonly groups: readonly number[]
  readonly members: readonly (readonly Member[])[]
  readonly staleness: readonly number[]
}

/** A loop over virtual time whose parts take a second each, unless others are given. */
async function play(
  settings: AdmissionSettings,
  options: LoopOptions<Member>,
  other: Partial<LoopParts<Member>> = {},
  time = new VirtualTime(),
) {
  const admission = new Admission(settings)
  const learned: Learned[] = []
  const delivered: number[] = []
  await time.run(() =>
    runLoop<Member>(
      {
        admission,
        time,
        sample: async ({ group, member }, signal) => {
          const { version } = admission
          await time.sleep(1, signal)
          return [group, member, version]
        },
        judge: async () => ({ keep: true }),
        learn: async (batch) => {
          learned.push({
            version: admission.version,
            groups: batch.map(({ group }) => group),
            members: batch.map(({ members }) => members),
            staleness: batch.map(({ staleness }) => staleness),
          })
          await time.sleep(1)
        },
        deliver: async (version) => {
          await time.sleep(1)
          delivered.push(version)
        },
        ...other,
      },
      options,
    ),
  )
  return { learned, delivered, seconds: time.now(), drops: admission.drops }
}

describe('The loop', () => {
  const settings = { groupsPerBatch: 2, groupSize: 2 }

  it('samples, learns and delivers in turn where nothing may be stale', async () => {
    const { learned, delivered, seconds } = await play(settings, { updates: 3 })
    expect(seconds).toBe(9)
    expect(delivered).toEqual([1, 2, 3])
    expect(learned.map(({ groups }) => groups)).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
    ])
    for (const { version, members, groups } of learned) {
      expect(members).toEqual(groups.map((group) => [0, 1].map((member) => [group, member, version])))
    }
  })

  it('learns from groups whose members are done at the same moment', async () => {
    const { learned } = await play(
      settings,
      { updates: 2 },
      { sample: async ({ group, member }) => [group, member, 0] },
    )
    expect(learned.map(({ members }) => members.map((each) => each.length))).toEqual([
      [2, 2],
      [2, 2],
    ])
  })

  it('begins nobody while no batch is wanted, and lets those who began go on', async () => {
    const time = new VirtualTime()
    const begun: (readonly [group: number, at: number])[] = []
    const settings = { groupsPerBatch: 1, groupSize: 1, overSampling: 2, maxStaleness: 1, ahead: 0 }
    const sample = async ({ group }: Ticket): Promise<Member> => {
      begun.push([group, time.now()])
      await time.sleep(group === 1 ? 5 : 1)
      return [group, 0, 0]
    }
    let asked = 0
    const wanted = () => time.sleep(asked++ === 0 ? 0 : 20)
    const { learned } = await play(settings, { updates: 3 }, { sample, wanted }, time)
    expect(learned.map(({ groups }) => groups)).toEqual([[0], [1], [2]])
    // Group 1 is done before it is wanted, so nobody begins for the second batch.
    expect(begun).toEqual([
      [0, 0],
      [1, 0],
      [2, 45],
      [3, 45],
    ])
  })

  it('samples while it learns where something may be', async () => {
    const { learned, seconds } = await play({ ...settings, maxStaleness: 1 }, { updates: 3 })
    expect(seconds).toBe(7) // One second for the first batch; those after it are there already.
    expect(learned.map(({ staleness }) => staleness)).toEqual([
      [0, 0],
      [1, 1],
      [1, 1],
    ])
    expect(learned.map(({ version, members }) => version - members[0]![0]![2])).toEqual([0, 1, 1])
  })

  it('ends a member that takes too long, by name, whether it listens or not', async () => {
    const hangs = () => new Promise<Member>(() => {})
    await expect(play(settings, { updates: 1, sampleSeconds: 30 }, { sample: hangs })).rejects.toThrow(
      'member 0 of group 0: got no answer in 30 s, expected an answer, or a longer sampleSeconds',
    )
    let asked = 0
    const time = new VirtualTime()
    const sample = async ({ group, member }: Ticket): Promise<Member> => {
      if (group === 0 && asked++ === 0) await hangs()
      await time.sleep(1)
      return [group, member, 0]
    }
    const retrying = { groupsPerBatch: 1, groupSize: 1, failure: { kind: 'retry', retries: 1 } } as const
    const { seconds, learned } = await play(retrying, { updates: 1, sampleSeconds: 30 }, { sample }, time)
    expect(learned[0]!.groups).toEqual([0])
    expect(seconds).toBe(33)
  })

  it('ends where no batch comes, and says who is still sampled', async () => {
    const time = new VirtualTime()
    const sample = async ({ group, member }: Ticket): Promise<Member> => {
      await (group === 1 ? new Promise(() => {}) : time.sleep(1))
      return [group, member, 0]
    }
    await expect(play(settings, { updates: 1, batchSeconds: 60 }, { sample }, time)).rejects.toThrow(
      'batch: got none in 60 s: 2 in progress, member 0 of group 1 since 60.0 s, member 1 of group 1 since 60.0 s, expected a batch',
    )
  })

  it.each(['sample', 'judge', 'learn', 'deliver'] as const)('ends with what %s failed with', async (part) => {
    const fails = async () => {
      throw new Error(`${part} is gone`)
    }
    await expect(play(settings, { updates: 2 }, { [part]: fails })).rejects.toThrow(`${part} is gone`)
  })

  it('stops after the update that is being made, and lets nobody sample on', async () => {
    const time = new VirtualTime()
    const stop = new AbortController()
    const aborted: number[] = []
    const sample = async ({ group, member }: Ticket, signal: AbortSignal): Promise<Member> => {
      await time.sleep(group < 2 ? 1 : 100, signal)
      if (signal.aborted) aborted.push(group)
      return [group, member, 0]
    }
    const deliver = async () => {
      stop.abort()
      await time.sleep(1)
    }
    const ahead = { ...settings, maxStaleness: 1 }
    const { learned, seconds } = await play(ahead, { updates: 9, signal: stop.signal }, { sample, deliver }, time)
    expect(learned).toHaveLength(1)
    expect(seconds).toBe(3)
    expect(aborted).toEqual([2, 2, 3, 3])
  })

  it('begins nobody when it has made its last update, nor while no batch is wanted, though others are admitted', async () => {
    const settings = { groupsPerBatch: 1, groupSize: 1, overSampling: 2, maxStaleness: 1 }
    for (const [updates, ahead, expected] of [
      [1, 1, [0, 0, 0, 0]], // Those that are broken off at the end leave room for others.
      [2, 0, [0, 0, 23, 23]], // So does one that is dropped while nobody waits for it.
    ] as const) {
      const time = new VirtualTime()
      const begun: number[] = []
      let asked = 0
      const parts: Partial<LoopParts<Member>> = {
        sample: async ({ group }, signal) => {
          begun.push(time.now())
          await time.sleep(group === 0 || group > 1 + 2 * ahead ? 1 : ahead === 1 ? 50 : 5, signal)
          return [group, 0, 0]
        },
        judge: async (group) => ({ keep: group !== 1 }),
        wanted: () => time.sleep(asked++ === 0 ? 0 : 20),
      }
      await play({ ...settings, ahead }, { updates }, parts, time)
      expect(begun).toEqual(expected)
    }
  })

  it('tells those who sample what nobody waits for any longer', async () => {
    const time = new VirtualTime()
    const aborted: [number, number][] = []
    const sample = async ({ group, member }: Ticket, signal: AbortSignal): Promise<Member> => {
      await time.sleep(group === 0 ? 1000 : 1, signal)
      if (signal.aborted) aborted.push([group, time.now()])
      return [group, member, 0]
    }
    const some = { groupsPerBatch: 2, groupSize: 1, overSampling: 1.5, order: 'arrival' } as const
    const { learned, drops, seconds } = await play(some, { updates: 2 }, { sample }, time)
    expect(learned.map(({ groups }) => groups)).toEqual([
      [1, 2],
      [3, 4],
    ])
    expect(drops).toEqual({ stale: 2 }) // Groups 0 and 5, of which the second was done.
    expect(aborted).toEqual([[0, 3]])
    expect(seconds).toBe(6)
  })
})

/** A schedule: what happens to each member and group, and when, as a function of numbers. */
const schedules = fc.record({
  settings: fc.record({
    groupsPerBatch: fc.integer({ min: 1, max: 3 }),
    groupSize: fc.integer({ min: 1, max: 3 }),
    maxStaleness: fc.integer({ min: 0, max: 3 }),
    maxConcurrent: fc.constantFrom(2, 5, Number.POSITIVE_INFINITY),
    overSampling: fc.constantFrom(1, 1, 2),
    order: fc.constantFrom('number' as const, 'number' as const, 'arrival' as const),
    failure: fc.constant({ kind: 'retry', retries: 2 } as const),
  }),
  seconds: fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 11, maxLength: 11 }),
  /** What members come to, one after another: an answer, a failure, or nothing until their deadline. */
  fates: fc.array(fc.constantFrom('done', 'done', 'done', 'fails', 'hangs'), { minLength: 7, maxLength: 7 }),
  kept: fc.array(fc.boolean(), { minLength: 5, maxLength: 5 }),
  /** When the process is killed, in seconds since it began: it goes on from the last update. */
  kills: fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 2 }),
})
type Schedule = typeof schedules extends fc.Arbitrary<infer S> ? S : never

/** Whether a group is kept, whoever is done first. Some always are, so that the loop goes on. */
const isKept = ({ kept }: Schedule, group: number) => group % 3 === 0 || kept[group % kept.length]!
/** A member's third attempt is always done. */
const fateOf = ({ fates }: Schedule, { group, member, attempt }: Ticket) =>
  attempt === 2 ? 'done' : fates[(3 * group + 5 * member + 2 * attempt) % fates.length]!

const UPDATES = 4
const SAMPLE_SECONDS = 12

/** Runs until its kill, if it is killed; returns what was learned, and what the last checkpoint has. */
async function live(schedule: Schedule, from: SavedLoop<Member> | undefined, kill: number | undefined) {
  const { settings, seconds } = schedule
  const time = new VirtualTime()
  const learned: Learned[] = []
  let saved = from
  let most = 0
  const secondsOf = (a: number, b: number) => seconds[(3 * a + b) % seconds.length]!
  const admission = new Admission(settings)
  const loop = runLoopUntil(kill)
  await time.run(() => loop)
  return { learned, saved, most, drops: admission.drops }

  function runLoopUntil(killed: number | undefined): Promise<unknown> {
    const running = runLoop<Member>(
      {
        admission,
        time,
        sample: async (ticket, signal) => {
          const { group, member, attempt } = ticket
          const { version } = admission
          most = Math.max(most, admission.sampling + admission.waiting)
          await time.sleep(secondsOf(group, member + attempt), signal)
          const fate = fateOf(schedule, ticket)
          if (fate === 'fails') throw new Error('lost')
          if (fate === 'hangs') await new Promise(() => {})
          return [group, member, version]
        },
        judge: async (group) => {
          await time.sleep(secondsOf(group, 1) / 4)
          return { keep: isKept(schedule, group) }
        },
        learn: async (batch) => {
          await time.sleep(secondsOf(admission.version, 2))
          learned.push({
            version: admission.version,
            groups: batch.map(({ group }) => group),
            members: batch.map(({ members }) => members),
            staleness: batch.map(({ staleness }) => staleness),
          })
        },
        deliver: (version) => time.sleep(secondsOf(version, 5)),
        onUpdate: (_, save) => {
          saved = JSON.parse(JSON.stringify(save()))
        },
      },
      { updates: UPDATES, sampleSeconds: SAMPLE_SECONDS, ...(from === undefined ? {} : { from }) },
    )
    if (killed === undefined) return running
    running.catch(() => {})
    return Promise.race([running, time.sleep(killed)]) // What a killed process would have done is never looked at.
  }
}

describe('Whatever happens whenever', () => {
  it('groups stay whole, none is delivered twice or lost, staleness is kept, and the loop ends', async () => {
    await fc.assert(
      fc.asyncProperty(schedules, async (schedule) => {
        const { groupsPerBatch, groupSize, maxStaleness, overSampling, order } = schedule.settings
        /** Batches by version: those that were made again after a kill are the ones that count. */
        const batches = new Map<number, Learned>()
        let saved: SavedLoop<Member> | undefined
        let drops: Readonly<Record<string, number>> = {}
        for (const kill of [...schedule.kills, undefined]) {
          const life = await live(schedule, saved, kill)
          for (const batch of life.learned) batches.set(batch.version, batch)
          expect(life.most).toBeLessThanOrEqual(Math.ceil(overSampling * (maxStaleness + 1) * groupsPerBatch))
          saved = life.saved
          drops = life.drops
        }
        expect([...batches.keys()]).toEqual(Array.from({ length: UPDATES }, (_, version) => version))
        const groups = [...batches.values()].flatMap((batch) => batch.groups)
        expect(new Set(groups).size).toBe(groups.length)
        for (const batch of batches.values()) {
          expect(batch.groups).toHaveLength(groupsPerBatch)
          expect(batch.groups).toEqual(batch.groups.toSorted((a, b) => a - b))
          batch.groups.forEach((group, i) => {
            expect(isKept(schedule, group)).toBe(true)
            const members = batch.members[i]!
            expect(members.map(([of, member]) => [of, member])).toEqual(
              Array.from({ length: groupSize }, (_, member) => [group, member]),
            )
            const oldest = Math.min(...members.map(([, , version]) => version))
            expect(batch.staleness[i]).toBeLessThanOrEqual(maxStaleness)
            expect(batch.version - oldest).toBeLessThanOrEqual(batch.staleness[i]!)
          })
        }
        if (order === 'arrival' || overSampling > 1) return
        expect(drops.stale).toBeUndefined()
        const expected: number[] = []
        for (let group = 0; expected.length < groups.length; group++) if (isKept(schedule, group)) expected.push(group)
        expect(groups).toEqual(expected)
      }),
      { numRuns: Number(process.env.LOOP_SCHEDULES ?? 300) },
    )
  }, 600_000)
})
