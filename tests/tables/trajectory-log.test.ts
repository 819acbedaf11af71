import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { listColumns, takeArena, zipColumns } from '../../src/components/arena.ts'
import { Trajectories, type TrajectoryColumns } from '../../src/tables/trajectories/trajectories.ts'
import type { Trajectory } from '../../src/tables/trajectories/trajectory.ts'
import { type TrajectoryLogSize, trajectoryLogPlan } from '../../src/tables/trajectories/trajectory-log.ts'
import * as fc from '../support/properties.ts'
import { anyTrajectory, plain, trajectory } from '../support/trajectories.ts'

const SIZE = { rows: 8, tokens: 60, candidateIds: 60, turnRewards: 12 }

/** Trajectories in a planned log, and its columns. */
function logOf(size: Partial<TrajectoryLogSize> = {}) {
  const plan = trajectoryLogPlan({ ...SIZE, ...size })
  const { columns, arena } = takeArena(plan)
  return { log: new Trajectories(columns), columns, plan, arena }
}

/** A trajectory of so many tokens, all of which are `id`. */
function long(id: number, length: number): Trajectory {
  const of = (value: number) => new Array<number>(length).fill(value)
  return trajectory({
    ...{ token: of(id), lossMask: of(1), logprob: of(-id), version: of(id), turn: of(0) },
    ...{ member: id, reward: id, turnReward: [id] },
  })
}

const rowsOf = (log: Trajectories) => Array.from({ length: log.count }, (_, i) => plain(log.row(i)))
const all = (log: Trajectories) => Array.from({ length: log.count }, (_, i) => i)

/** The rows of a table of columns, without their components. */
function readBack(columns: TrajectoryColumns): unknown[] {
  return Array.from(columns.reward, (_, i) => {
    const [from, to] = [columns.offsets[i], columns.offsets[i + 1]]
    const ids = columns.candidateIds.slice(columns.candidateOffsets[i], columns.candidateOffsets[i + 1])
    return {
      source: columns.source[i],
      group: columns.group[i],
      segment: columns.segment[i],
      stopReason: columns.stopReason[i],
      reward: columns.known[i] === 1 ? columns.reward[i] : null,
      token: [...columns.token.subarray(from, to)],
      logprob: [...columns.logprob.subarray(from, to)],
      candidateCount: [...columns.candidateCount.subarray(from, to)],
      candidateIds: [...ids],
      turnReward: [...columns.turnReward.slice(columns.turnRewardOffsets[i], columns.turnRewardOffsets[i + 1])],
    }
  })
}

function readable({ components: _, ...row }: ReturnType<typeof plain>): unknown {
  const { source, group, segment, stopReason, reward, token, logprob, candidateCount, candidateIds, turnReward } = row
  return { source, group, segment, stopReason, reward, token, logprob, candidateCount, candidateIds, turnReward }
}

/** A conversation of one row, or of several. */
const anyConversation = fc
  .tuple(anyTrajectory, fc.integer({ min: 1, max: 3 }))
  .map(([first, numRows]) => Array.from({ length: numRows }, (_, segment) => ({ ...first, segment })))

const anyStep = fc.oneof(
  { weight: 5, arbitrary: anyConversation.map((rows) => ({ append: rows })) },
  { weight: 3, arbitrary: fc.nat(3).map((forget) => ({ forget })) },
  { weight: 1, arbitrary: fc.infiniteStream(fc.boolean()).map((some) => ({ keep: [...some.take(20)] })) },
  { weight: 1, arbitrary: fc.constant({ clear: true as const }) },
)

describe('a planned log', () => {
  test('is a list of conversations of which the oldest are forgotten, whatever happens to it', () => {
    fc.assert(
      fc.property(fc.array(anyStep, { maxLength: 40 }), (steps) => {
        const { log } = logOf()
        let model: ReturnType<typeof plain>[][] = []
        for (const step of steps) {
          if ('append' in step) {
            const isEmpty = log.count === 0
            const isStored = log.appendConversation(step.append)
            const sizes = step.append.reduce(
              (sum, { token, candidateIds, turnReward }) => {
                return [sum[0]! + token.length, sum[1]! + candidateIds!.length, sum[2]! + turnReward!.length]
              },
              [0, 0, 0],
            )
            const fits = sizes[0]! <= SIZE.tokens && sizes[1]! <= SIZE.candidateIds && sizes[2]! <= SIZE.turnRewards
            if (isEmpty) expect(isStored).toBe(fits)
            if (isStored) model.push(step.append.map(plain))
          } else if ('forget' in step) {
            const some = model.slice(0, step.forget)
            log.forget(some.flat().length)
            model = model.slice(some.length)
          } else if ('keep' in step) {
            const kept = model.map((rows, c) => (step.keep[c] ? rows : []))
            let row = 0
            log.keep(model.flatMap((rows, c) => rows.map(() => row++).filter(() => step.keep[c])).toReversed())
            model = kept.filter((rows) => rows.length > 0)
          } else {
            log.clear()
            model = []
          }
          const rows = model.flat().map(readable)
          expect([log.count, log.numConversations]).toEqual([rows.length, model.length])
          expect(log.numTokens).toBe(model.flat().reduce((sum, { token }) => sum + token.length, 0))
          expect(rowsOf(log).map(readable)).toEqual(rows)
          expect(log.stretches(all(log)).flatMap(readBack)).toEqual(rows)
          expect(readBack(log.columns())).toEqual(rows)
          const turned = log.rows(all(log).toReversed())
          const tokens = Array.from(turned.begin, (begin, i) => [...turned.token.subarray(begin, turned.end[i])])
          expect(tokens).toEqual(
            model
              .flat()
              .map(({ token }) => token)
              .toReversed(),
          )
        }
      }),
      { numRuns: 150 },
    )
  })

  test('refuses what has no room, and changes nothing; when the oldest are forgotten it begins at its front again', () => {
    const { log, columns } = logOf({ rows: 5, tokens: 10 })
    for (const [id, length] of [
      [1, 2],
      [1, 2],
      [2, 4],
    ] as const)
      log.append(long(id, length))
    const before = rowsOf(log)
    expect(log.appendConversation([long(3, 3)])).toBe(false)
    expect(() => log.append(long(3, 3))).toThrow(InputError)
    expect(() => log.append(long(3, 3))).toThrow(
      'trajectories: got a row of 3 tokens, expected a row for which the log has room',
    )
    expect(rowsOf(log)).toEqual(before)
    log.forget(1)
    expect(log.appendConversation([long(3, 3)])).toBe(false)
    log.forget(1)
    expect(log.appendConversation([long(3, 3)])).toBe(true)
    expect([...columns.token]).toEqual([3, 3, 3, 1, 2, 2, 2, 2, 0, 0]) // No row straddles the end.
    expect(rowsOf(log)).toEqual([long(2, 4), long(3, 3)].map(plain))
    expect(log.appendConversation([long(4, 2)])).toBe(false)
    log.forget(1)
    expect(log.appendConversation([long(4, 7)])).toBe(true)
    expect([...columns.token]).toEqual([3, 3, 3, 4, 4, 4, 4, 4, 4, 4])
    expect(log.stretches([0, 1])).toHaveLength(1)
  })

  test('keeps a row free before the oldest, whose tokens begin where an offset stands', () => {
    const { log } = logOf({ rows: 4, tokens: 12 })
    for (const id of [1, 2, 3, 4]) log.append(long(id, 3))
    log.forget(1)
    expect(log.appendConversation([long(5, 1)])).toBe(false)
    log.forget(1)
    expect(log.appendConversation([long(5, 1)])).toBe(true)
    expect(log.appendConversation([long(6, 1)])).toBe(false)
    expect(rowsOf(log)).toEqual([long(3, 3), long(4, 3), long(5, 1)].map(plain))
  })

  test('keeps the rows of a conversation together: what does not fit whole before the end begins at the front', () => {
    const { log } = logOf({ rows: 6, tokens: 10 })
    for (const id of [1, 1, 1]) log.append(long(id, 2))
    log.append(long(2, 1))
    const rows = [long(3, 2), { ...long(3, 2), segment: 1 }]
    expect(log.appendConversation(rows)).toBe(false) // Though the first row alone has room.
    log.forget(3)
    expect(log.appendConversation(rows)).toBe(true)
    const { begin, end } = log.rows([0, 1, 2])
    expect([[...begin], [...end]]).toEqual([
      [6, 0, 2],
      [7, 2, 4],
    ])
    expect(() => log.forget(2)).toThrow('rows to forget: got 2, which splits a conversation')
    expect(() => log.forget(4)).toThrow('rows to forget: got 4, expected a whole number from 0 to 3')
  })

  test('is the columns that were planned: no table that is made of it has others, but for offsets and a row’s numbers', () => {
    const { log, columns, plan, arena } = logOf()
    for (const id of [1, 2, 3]) log.append(long(id, 5))
    const [table] = log.stretches([0, 1, 2])
    for (const { planned, column } of zipColumns(plan, columns)) {
      const found = table![planned.name as 'token']
      expect([planned.name, found.buffer === arena.buffer, found.byteOffset]).toEqual([
        planned.name,
        true,
        column.byteOffset,
      ])
    }
    const [later] = log.stretches([1, 2])
    expect(later!.token.byteOffset).toBe(columns.token.byteOffset + 4 * 5)
    expect([...later!.offsets]).toEqual([0, 5, 10])
    expect(log.stretches([2, 0, 1]).map(({ promptId }) => promptId.length)).toEqual([1, 2])
  })

  test('of a size that nothing holds is an error before memory is taken', () => {
    const plan = trajectoryLogPlan({ ...SIZE, tokens: 2 ** 40 })
    expect(() => takeArena(plan)).toThrow(InputError)
    expect(() => takeArena(plan)).toThrow(/memory: got a plan of .* TiB \(most of it for /)
    expect(listColumns(plan).length).toBe(22)
  })
})
