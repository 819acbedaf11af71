import { describe, expect, test } from 'vitest'
import { codeReward, extractCode, type Judgment, judge, withPolicy } from '../../../src/entries/rewards.ts'
import { InputError } from '../../../src/index.ts'

const add = [
  { input: [1, 2], expected: 3 },
  { input: [-1, 1], expected: 0 },
]

function value(code: string, tests: unknown = add, parameters = {}, columns = {}): Promise<Judgment> {
  const limits = { maxSteps: 10_000_000, memoryLimitMib: 16 }
  return judge(codeReward({ ...limits, ...parameters }), {
    prompt: '',
    completion: code,
    example: { prompt: '', tests, ...columns },
  })
}
const right = { value: 1, components: { passed: 1, excess: 0 } }
const wrong = { value: 0, components: { passed: 0, excess: 0 }, reason: expect.any(String) }
const endless = { value: 0, components: { passed: 0, excess: 1 }, reason: expect.any(String), excess: 'steps' }

describe('a program', () => {
  test('that passes all tests is worth 1, and another 0, or with partial its share', async () => {
    expect(await value('function solve(a, b) { return a + b }')).toEqual(right)
    expect(await value('const solve = (a, b) => a + b')).toEqual(right)
    expect(await value('export async function solve(a, b) { await null; return a + b }')).toEqual(right)
    const half = { components: { passed: 0.5, excess: 0 }, reason: 'test 1: gave 3' }
    expect(await value('const solve = () => 3')).toEqual({ value: 0, ...half })
    expect(await value('const solve = () => 3', add, { partial: true })).toEqual({ value: 0.5, ...half })
  })

  test('is found in the last fenced block', async () => {
    const completion = 'First\n```js\nbroken(\n```\nthen\n```javascript\nconst solve = (a, b) => a + b\n```\nDone.'
    expect(extractCode(completion)).toBe('\nconst solve = (a, b) => a + b\n')
    expect(extractCode('```js\n1\n```\n```js\n2')).toBe('\n2')
    expect(await value(completion)).toEqual(right)
  })

  test('is compared as JSON, whatever the order of keys', async () => {
    const tests = [{ input: [], expected: { a: [1, null], b: { c: 'x' } } }]
    expect(await value('const solve = () => ({ b: { c: "x" }, a: [1, null] })', tests)).toEqual(right)
    for (const result of [
      '{ a: [1, NaN], b: { c: "x" } }',
      '{ a: [1, undefined], b: { c: "x" } }',
      '{ a: [1, null] }',
    ]) {
      expect(await value(`const solve = () => (${result})`, tests)).toEqual(wrong)
    }
    expect(await value('const solve = () => ({ length: 0 })', [{ input: [], expected: [] }])).toEqual(wrong)
  })

  test('may have its function named by the example', async () => {
    const code = 'function sum(a, b) { return a + b }'
    expect(await value(code, add, {}, { functionName: 'sum' })).toEqual(right)
    expect(await value(code)).toEqual(wrong)
    expect(await value(code, add, {}, { functionName: 'sum();' })).toMatchObject({ value: null, failure: 'threw' })
    expect(() => codeReward({ functionName: '1; while(1)' })).toThrow(InputError)
  })

  test.each([
    ['does not parse', 'function solve( {'],
    ['has no such function', 'const other = 1'],
    ['throws', 'const solve = () => { throw new Error("x") }'],
    ['throws a number', 'throw 7'],
    ['takes all memory', 'const hoard = []; for (;;) hoard.push(new Uint8Array(100_000))'],
    ['takes all memory at once', 'const solve = () => "x".repeat(2 ** 30).length'],
    ['calls itself for ever', 'function solve() { return solve() + 1 }'],
    ['is nested too deeply', `const solve = () => JSON.parse("[".repeat(100000))`],
    ['is too deep to be read', 'eval("(".repeat(100000))'],
    ['waits for nothing', 'const solve = () => new Promise(() => {})'],
    ['is rejected', 'const solve = async () => { throw 1 }'],
    [
      'asks for the host',
      'const solve = () => typeof process + typeof require + typeof fetch + typeof globalThis.Buffer',
    ],
    ['leaves the host by its constructor', 'const solve = () => solve.constructor("return process")().exit()'],
  ])('that %s fails, and the next one is judged as ever', async (_, code) => {
    expect(await value(code, add, { maxSteps: 50_000_000 })).toEqual(wrong)
    expect(await value('const solve = (a, b) => a + b')).toEqual(right)
  })

  test.each([
    ['never ends', 'for (;;);'],
    ['never ends and catches what ends it', 'const solve = () => { for (;;) try { for (;;); } catch {} }'],
    ['never ends within native code', 'const solve = () => new Array(4294967295).indexOf(1)'],
    ['hardly ends where it searches', 'const x = "x".repeat(1e6), solve = () => { for (;;) x.indexOf("xy") }'],
    ['hardly ends where it copies', 'const x = new Uint8Array(1e6), solve = () => { for (;;) x.fill(1) }'],
    ['hardly ends where it multiplies', 'const solve = () => { for (let x = 3n; ; x *= x) x.toString() }'],
    ['matches for ever', 'const solve = () => /(a+)+b/.test("a".repeat(40))'],
    ['goes on in promises for ever', 'const solve = async () => { for (;;) await null }'],
    ['never ends where its result is read', 'const solve = () => ({ toJSON() { for (;;); } })'],
    ['never ends where its error is read', 'const solve = () => { throw { get message() { for (;;); } } }'],
  ])('that %s is out of steps: 0 with a reason, however long it took', async (_, code) => {
    expect(await value(code)).toEqual(endless)
    expect(await value('const solve = (a, b) => a + b')).toEqual(right)
  })

  test('has its steps, and no more: the same number on any machine', async () => {
    const code = 'const solve = (a, b) => { for (let i = 0; i < 40000; i++); return a + b }'
    expect(await value(code, add, { maxSteps: 1_000_000 })).toEqual(right)
    expect(await value(code, add, { maxSteps: 100_000 })).toEqual({
      ...endless,
      reason: 'test 0: ran out of its 100000 steps',
    })
  })

  test('is given as long as it takes where a policy has a time limit, and what ran out is counted', async () => {
    const policed = withPolicy(codeReward({ maxSteps: 5_000_000 }), { timeoutMs: 1 })
    const example = { prompt: '', tests: add }
    expect(await policed('', 'const solve = (a, b) => a + b', example)).toEqual(right)
    expect(await policed('', 'for (;;);', example)).toEqual(endless)
    expect(policed.counts).toMatchObject({ calls: 2, excesses: { steps: 1, nesting: 0 }, failures: { hung: 0 } })
  })

  test('has the memory that it is given, and no more', async () => {
    const code =
      'const solve = (a, b) => { const hoard = new Array(2_000_000).fill(1.5); return a + b + hoard[0] - 1.5 }'
    expect(await value(code, add, { memoryLimitMib: 128, maxSteps: 50_000_000 })).toEqual(right)
    expect(await value(code, add, { memoryLimitMib: 16, maxSteps: 50_000_000 })).toEqual(wrong)
  })

  test.each([
    ['JSON', 'JSON.stringify = () => "3"; JSON.parse = () => [3]; const solve = () => 4'],
    ['toJSON', 'Object.prototype.toJSON = () => 3; Number.prototype.toJSON = () => 3; const solve = () => 4'],
    ['valueOf', 'const solve = () => ({ valueOf: () => 3, [Symbol.toPrimitive]: () => 3 })'],
    ['equality', 'Object.is = () => true; Array.prototype.every = () => true; const solve = () => 4'],
    ['Reflect', 'Reflect.apply = () => 3; Function.prototype.call = () => 3; const solve = () => 4'],
    ['a proxy', 'const solve = () => new Proxy({}, { get: () => 3, has: () => true })'],
  ])('does not pass by tampering with %s', async (_, code) => {
    const { value: found } = await value(code, [
      { input: [1, 2], expected: 3 },
      { input: [2, 2], expected: 4 },
    ])
    expect(found).toBe(0)
  })

  test('finds nothing that another call left', async () => {
    const code = 'globalThis.count = (globalThis.count ?? 0) + 1; const solve = () => count'
    const tests = [
      { input: [], expected: 1 },
      { input: [], expected: 1 },
    ]
    expect(await value(code, tests)).toEqual(right)
  })

  test('cannot be judged without tests: null and never 0', async () => {
    for (const tests of [null, [], [{ input: 1, expected: 1 }], [{ input: [1] }], 'x']) {
      expect(await value('const solve = 1', tests)).toMatchObject({ value: null, failure: 'noReference' })
    }
  })
})
