// Whether rewards depend on the load of the machine: judges 500 programs and 500 mathematical answers, then the same ones
// beside as many busy processes as --load says, and compares every judgment. Then looks for what takes judges longest, for
// the limits of time at which their workers are killed (docs/rewards.md).
import { spawn } from 'node:child_process'
import { availableParallelism, loadavg } from 'node:os'
import { codeReward, mathAccuracyReward, withPolicy } from '../../dist/src/entries/rewards.js'
import { runProgram } from '../../dist/src/language/rewards/code/interpreter.js'
import { compareAnswers } from '../../dist/src/language/rewards/comparison.js'

/** Uniform numbers in [0, 1) from a seed (mulberry32). */
function uniform(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Programs that are right, wrong, broken, and that run out of steps, also just about. */
const PROGRAMS = [
  (n) => `const solve = (a, b) => a + b + ${n % 3}`,
  (n) => `function solve(a, b) { let s = 0; for (let i = 0; i < ${n * 97}; i++) s += i % 7; return a + b + (s - s) }`,
  (n) => `const solve = (a, b) => { const m = {}; for (let i = 0; i < ${n * 11}; i++) m['k' + i] = [i]; return a + b }`,
  (n) => `const solve = (a, b) => { for (;;) 'x'.repeat(${1000 + n}).indexOf('y') }`,
  (n) => `const solve = (a, b) => /(a+)+b/.test('a'.repeat(${10 + (n % 20)})) ? 0 : a + b`,
  (n) => `const solve = async (a, b) => { for (let i = 0; i < ${n * 5}; i++) await i; return a + b }`,
  (n) => `function solve(a, b) { return a > ${n} ? 0 : solve(a + 1, b) }`,
  (n) => `const solve = (a, b) => (Math.random() < 0.5 ? a + b : Date.now() + ${n})`,
  () => 'const solve = (a, b) => { const hoard = []; for (;;) hoard.push(new Uint8Array(100000)) }',
]
const ANSWERS = [
  (n) => [`x^2+${n}`, `${n}+x x`],
  (n) => [`(x+${n})^2`, `x^2+${2 * n}x+${n * n}`],
  (n) => [`${'(1+x)'.repeat(n % 20)}+1`, `1+(x+1)^{${n % 20}}`],
  (n) => [`9^{9^{${n}}}`, `${n}x`],
  (n) => [`${'('.repeat(n % 99)}x${')'.repeat(n % 99)}`, 'x+0'],
  (n) => [`x+${'(2^{-999}+3^{630}x)'.repeat(1 + (n % 20))}`, 'x'],
  (n) => [`\\sqrt{${n * n}x^2}`, `${n}|x|`],
  (n) => [
    `${Array.from({ length: n % 90 }, (_, i) => `${i}y`).join(',')},z`,
    `z,${Array.from({ length: n % 90 }, (_, i) => `y\\cdot ${i}`).join(',')}`,
  ],
]

/** All judgments, in their order. */
async function judgments(count, seed) {
  const random = uniform(seed)
  const draw = (list) => list[Math.floor(random() * list.length)](1 + Math.floor(random() * 1000))
  const code = withPolicy(codeReward({ maxSteps: 200_000 }), { timeoutMs: 1 })
  const maths = withPolicy(mathAccuracyReward(), { timeoutMs: 1 })
  const tests = [{ input: [1, 2], expected: 3 }]
  const jobs = Array.from({ length: count }, (_, i) => {
    if (i % 2 === 0) return code('', draw(PROGRAMS), { prompt: '', tests })
    const [answer, reference] = draw(ANSWERS)
    return maths('', `\\boxed{${answer}}`, { prompt: '', answer: reference })
  })
  const judged = await Promise.all(jobs)
  return { judged: judged.map((one) => JSON.stringify(one)), excesses: [code.counts.excesses, maths.counts.excesses] }
}

/** Programs that may be slow for the steps that they take: those that wait for memory, or that call the host. */
const SLOW = [
  'const a = new Int32Array(12e6); let i = 1; for (;;) i = a[(i = (i * 1103515245 + 12345) & 0x7fffff)] + i',
  'let f = (x) => x; for (let i = 0; i < 1e5; i++) f = f.bind(); for (;;) f(1)',
  'const a = []; for (let i = 0; i < 3e5; i++) a.push({ i }); for (let i = 0; ; i = (i + 7919 * 131) % 3e5) a[i].i++',
  'for (;;) Date.now()',
  'for (;;) new Date(2020, 1, 1).getTime()',
  'for (let x = 0.1; ; x = Math.sin(x) ** 0.3 + 1e300 % 0.7);',
  'for (;;) new Array(100000).fill(1)',
  'const m = new Map(); for (let i = 0; ; i++) m.set((i * 7919) % 100003, [i])',
  'for (let i = 0; ; i++) parseFloat("1." + i + "e-310")',
  '/(a+)+b/.test("a".repeat(60))',
]

async function slowest() {
  const maxSteps = 5_000_000
  let perStep = 0
  for (const code of SLOW) {
    const before = process.cpuUsage()
    await runProgram({ code, functionName: 'solve', argumentsJson: '[]', maxSteps, memoryLimitMib: 64 })
    perStep = Math.max(perStep, (1000 * process.cpuUsage(before).user) / maxSteps)
  }
  const random = uniform(1)
  const parts = [
    'x',
    'y',
    '7',
    '(x+1)',
    '|x|',
    '\\frac12',
    'x^2',
    '^{999}',
    '2^{500}',
    '\\sqrt{x}',
    '5000!',
    '+',
    '/',
    '=',
    ',',
    '(',
    '{',
    '\\{',
    '3^{-630}',
    '1e9999',
    '\\sqrt[63]{2^{999}}',
  ]
  let milliseconds = 0
  for (let i = 0; i < 100; i++) {
    const unit = Array.from(
      { length: 1 + Math.floor(3 * random()) },
      () => parts[Math.floor(parts.length * random())],
    ).join('')
    const answer = `x+${unit.repeat(Math.floor(990 / unit.length))}`
    const before = process.cpuUsage()
    compareAnswers({ answer, reference: random() < 0.5 ? 'x' : `${answer}+0`.slice(0, 1000) })
    milliseconds = Math.max(milliseconds, process.cpuUsage(before).user / 1000)
  }
  return { perStep, milliseconds }
}

/** @returns whether all judgments were equal. */
export async function stressRewards({ load = 8, count = 1000, seed = 1 }) {
  const started = loadavg()[0]
  const alone = await judgments(count, seed)
  const spinners = Array.from({ length: load }, () => spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }))
  const beside = await judgments(count, seed).finally(() => {
    for (const spinner of spinners) spinner.kill('SIGKILL')
  })
  const different = alone.judged.filter((one, i) => one !== beside.judged[i]).length
  const unknown = alone.judged.filter((one) => JSON.parse(one).value === null).length
  const right = alone.judged.filter((one) => JSON.parse(one).value === 1).length
  console.log(
    `${count} judgments (seed ${seed}): ${right} of 1, ${unknown} unknown; beyond limits, programs and maths:`,
  )
  console.log(JSON.stringify(alone.excesses))
  console.log(
    `${different} differ beside ${load} busy processes on ${availableParallelism()} cores (load before: ${started.toFixed(1)})`,
  )
  const { perStep, milliseconds } = await slowest()
  console.log(
    `slowest program: ${perStep.toFixed(0)} ns of CPU a step; slowest comparison: ${milliseconds.toFixed(0)} ms of CPU`,
  )
  console.log(JSON.stringify({ count, seed, load, different, unknown, perStep, milliseconds }))
  return different === 0
}
