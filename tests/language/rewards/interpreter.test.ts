import { describe, expect, test } from 'vitest'
import { type CodeResult, runProgram } from '../../../src/language/rewards/code/interpreter.ts'

const call = (code: string, list: readonly unknown[] = [], limits = {}): Promise<CodeResult> =>
  runProgram({
    code,
    functionName: 'solve',
    argumentsJson: JSON.stringify(list),
    maxSteps: 10_000_000,
    memoryLimitMib: 16,
    ...limits,
  })

describe('an interpreter', () => {
  test('gives a result as JSON, or what was wrong', async () => {
    expect(await call('const solve = (a, b) => [a, { b }]', [1, 'x'])).toEqual({ json: '[1,{"b":"x"}]' })
    expect(await call('const solve = async (a) => { await null; return a + 1 }', [1])).toEqual({ json: '2' })
    expect(await call('const solve = () => [NaN, undefined, 1n, Symbol.iterator, () => 1, -1 / 0]')).toEqual({
      json: `[${['NaN', 'undefined', '1', 'Symbol(Symbol.iterator)', '() => 1', '-Infinity'].map((word) => `{"$noJson":"${word}"}`)}]`,
    })
    expect(await call('const solve = () => { throw new TypeError("so") }')).toEqual({ error: 'TypeError: so' })
    expect(await call('const solve = () => { throw 7 }')).toEqual({ error: 'threw 7' })
    expect(await call('const solve = async () => { throw null }')).toEqual({ error: 'threw null' })
    expect(await call('const solve = () => new Promise(() => {})')).toEqual({ error: 'the promise is never settled' })
    expect(await call('let solve; Promise.resolve().then(() => { solve = 1 })')).toEqual({
      error: 'TypeError: not a function',
    })
  })

  test('has a clock that stands still in UTC and random numbers that are always the same', async () => {
    const code = `const solve = () => [Date.now(), new Date().getTime(), new Date(2020, 0, 1).getTime(),
      new Date(0).getTimezoneOffset(), Math.random(), Math.random()]`
    const first = await call(code)
    expect(first).toEqual(await call(code))
    const [now, made, local, offset, a, b] = JSON.parse((first as { json: string }).json) as number[]
    expect([now, made, local, offset]).toEqual([0, 0, Date.UTC(2020, 0, 1), 0])
    expect(a).not.toBe(b)
  })

  test('takes the same steps for the same program, whatever ran before', async () => {
    // The loop's end is found to one step in 100,000 of what it takes.
    const code = 'const solve = (n) => { let s = {}; for (let i = 0; i < n; i++) s["k" + i] = [i]; return 1 }'
    const needs = async (near = [0, 2_000_000]): Promise<number> => {
      let [low, high] = near as [number, number]
      while (high - low > 1) {
        const middle = (low + high) >> 1
        if ('json' in (await call(code, [300], { maxSteps: middle }))) high = middle
        else low = middle
      }
      return high
    }
    const steps = await needs()
    await call('const hoard = []; for (;;) hoard.push([hoard])')
    await call('function solve() { return solve() + 1 }')
    expect(await needs([steps - 3, steps + 3])).toBe(steps)
    expect(await call(code, [300], { maxSteps: steps - 1 })).toEqual({
      error: `ran out of its ${steps - 1} steps`,
      excess: 'steps',
    })
  })

  test('says that it ran out of steps, whatever the program was about', async () => {
    for (const code of [
      'for (;;);',
      'const solve = () => { try { for (;;); } finally { return 1 } }',
      'const solve = async () => { for (;;) await null }',
      'const solve = () => ({ toJSON() { for (;;); } })',
    ]) {
      expect(await call(code)).toEqual({ error: 'ran out of its 10000000 steps', excess: 'steps' })
    }
  })

  test('has the memory that it is given', async () => {
    const code = 'const solve = () => new Array(2_000_000).fill(1.5)[0]'
    expect(await call(code, [], { memoryLimitMib: 128, maxSteps: 1e9 })).toEqual({ json: '1.5' })
    expect(await call(code, [], { maxSteps: 1e9 })).toEqual({ error: 'InternalError: out of memory' })
  })
})
