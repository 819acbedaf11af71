import { describe, expect, test } from 'vitest'
import { WorkerPool } from '../src/base/threads/workers.ts'

const entry = new URL('./support/reward-worker.mjs', import.meta.url)
const answerOf = (outcome: object): unknown => ('answer' in outcome ? outcome.answer : outcome)

describe('a pool of workers', () => {
  test('keeps a worker for the next task', async () => {
    const pool = new WorkerPool(entry, { size: 1 })
    const first = answerOf(await pool.run('id', 10_000))
    expect(answerOf(await pool.run('id', 10_000))).toBe(first)
    expect(await pool.run('error', 10_000)).toEqual({ failure: 'threw', error: 'a task that fails' })
    expect(answerOf(await pool.run('id', 10_000))).toBe(first)
  })

  test('kills one that does not end, and goes on with another', async () => {
    const pool = new WorkerPool(entry, { size: 1 })
    const first = answerOf(await pool.run('id', 10_000))
    expect(await pool.run('loop', 50)).toEqual({ failure: 'hung', error: 'no answer within 50 ms' })
    const second = answerOf(await pool.run('spent', 10_000))
    const third = answerOf(await pool.run('id', 10_000))
    expect([typeof first, typeof second, typeof third]).toEqual(['number', 'number', 'number'])
    expect(new Set([first, second, third]).size).toBe(3)
  })

  test.each([
    ['exit', /ended with code 3/],
    ['throw', /out of the worker/],
    ['grow', /memory/],
  ])('survives a worker that dies by %s', async (task, message) => {
    const pool = new WorkerPool(entry, { size: 1, memoryMib: 32 })
    const outcome = await pool.run(task, 30_000)
    expect(outcome).toMatchObject({ failure: 'died' })
    expect('error' in outcome && outcome.error).toMatch(message)
    expect(typeof answerOf(await pool.run('id', 10_000))).toBe('number')
  })

  test('kills one whose task was aborted, and does not start what was aborted before', async () => {
    const pool = new WorkerPool(entry, { size: 1 })
    const controller = new AbortController()
    const looping = pool.run('loop', 60_000, controller.signal)
    const waiting = pool.run('id', 60_000, controller.signal)
    setTimeout(() => controller.abort(), 100)
    expect(await looping).toMatchObject({ failure: 'aborted' })
    expect(await waiting).toMatchObject({ failure: 'aborted' })
    expect(typeof answerOf(await pool.run('id', 10_000))).toBe('number')
  })

  test('notices what is aborted while its worker starts, and keeps the worker for the next', async () => {
    const pool = new WorkerPool(entry, { size: 1 })
    const controller = new AbortController()
    const starting = pool.run('loop', 60_000, controller.signal)
    setTimeout(() => controller.abort()) // No worker is there so soon.
    expect(await starting).toMatchObject({ failure: 'aborted' })
    expect(typeof answerOf(await pool.run('id', 10_000))).toBe('number')
  })

  test('never has more workers than it may, and serves everyone', async () => {
    const pool = new WorkerPool(entry, { size: 2 })
    const answers = await Promise.all(Array.from({ length: 20 }, () => pool.run('id', 10_000)))
    expect(new Set(answers.map(answerOf)).size).toBeLessThanOrEqual(2)
    expect(answers.every((outcome) => typeof answerOf(outcome) === 'number')).toBe(true)
  })

  test('says that a module cannot be loaded', async () => {
    const pool = new WorkerPool(new URL('./absent.mjs', import.meta.url))
    expect(await pool.run('id', 1000)).toMatchObject({ failure: 'died' })
  })
})
