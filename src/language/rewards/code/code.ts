/**
 * Rewards for JavaScript programs. The completion's function is called with the arguments of the example's tests, in an
 * interpreter whose limits of steps and memory do not depend on the machine or its load. The worker is killed only
 * after a time that no program within the limits takes, so only a faulty judge is killed.
 */
import { checkGiven, InputError, show } from '../../../base/errors.ts'
import { ownFile } from '../../../base/files/own-files.ts'
import { boolean, integer, text } from '../../../base/settings.ts'
import { WorkerPool } from '../../../base/threads/workers.ts'
import type { Example } from '../../../environments/text.ts'
import { defineReward, type ExcessKind, failed, type Judgment } from '../reward.ts'
import type { CodeResult, CodeTask } from './interpreter.ts'

/** Nanoseconds per step before the worker is killed, at least 20 times the slowest known program; at least a minute. */
const NS_PER_STEP = 1000
const MIN_MS = 60_000

/** MiB of a worker's stack: large enough that the interpreter's own, machine-independent limit is reached first. */
const STACK_MIB = 32

let pool: WorkerPool | undefined

/** A test of a program: the call's arguments and the expected result, both JSON. */
export interface CodeTest {
  readonly input: readonly unknown[]
  readonly expected: unknown
}

/** The last fenced code block of a completion, or all of it without one. `export` before a declaration is removed. */
export function extractCode(completion: string): string {
  checkGiven('completion of extractCode', completion, 'a text')
  const fences = completion.split(/^[ \t]*```[^\n]*$/m)
  const code = fences.length < 3 ? completion : fences[fences.length % 2 === 1 ? fences.length - 2 : fences.length - 1]!
  return code.replace(/^export\s+(?:default\s+)?(?=(?:async\s+)?(?:function|const|let|class)\b)/gm, '')
}

/**
 * Whether a program passes its example's tests: 1 for all of them, otherwise 0; with `partial`, the fraction passed.
 * The column `tests` has a list of `{ input, expected }`: the list of arguments and the result as JSON. The column
 * `functionName`, or else the setting, names the function. A program that throws or exceeds its steps or memory fails
 * that test; the reward itself does not fail. `reason` describes the first failed test, and the component `excess` is 1
 * if a call exceeded a limit. Null if the example has no tests, or the worker died or was killed.
 * @throws InputError for an invalid function name.
 */
export const codeReward = defineReward({
  id: 'code',
  inTime: true,
  settings: {
    functionName: text('solve', 'function to call if the example names none'),
    partial: boolean(false, 'reward the fraction of passed tests, instead of all or nothing'),
    maxSteps: integer(100_000_000, 'maximum of interpreter steps of one call; a second has about 50 million', {
      min: 100_000,
      max: 1e12,
    }),
    memoryLimitMib: integer(64, 'MiB of memory for one call, including the interpreter’s own', { min: 16, max: 1024 }),
  },
  make: (settings) => {
    checkName('code.functionName', settings.functionName)
    return async (_, completion, example, signal) => {
      const tests = testsOf(example)
      if (!isList(tests)) return tests
      const { functionName = settings.functionName } = example
      checkName('the example’s functionName', functionName)
      const code = extractCode(completion)
      const { maxSteps, memoryLimitMib } = settings
      let passed = 0
      let reason: string | undefined
      let excess: ExcessKind | undefined
      for (const [i, { input, expected }] of tests.entries()) {
        const task = { code, functionName, argumentsJson: JSON.stringify(input), maxSteps, memoryLimitMib }
        const result = await call(task, signal)
        if ('failure' in result) return result
        if ('json' in result && isSameJson(JSON.parse(result.json), expected)) {
          passed++
          continue
        }
        reason ??= `test ${i}: ${'json' in result ? `gave ${show(JSON.parse(result.json))}` : result.error}`
        if ('error' in result) excess ??= result.excess
        if (!settings.partial) break
      }
      const share = passed / tests.length
      const components = { passed: share, excess: excess === undefined ? 0 : 1 }
      return { value: settings.partial ? share : Math.floor(share), components, reason, excess }
    }
  },
})

function checkName(subject: string, name: unknown): asserts name is string {
  if (typeof name !== 'string' || !/^[A-Za-z_$][\w$]*$/.test(name)) {
    throw new InputError(subject, show(name), 'the name of a function, like solve')
  }
}

function testsOf({ tests }: Example): readonly CodeTest[] | Judgment {
  const isTest = (test: unknown): boolean =>
    typeof test === 'object' && test !== null && 'expected' in test && 'input' in test && Array.isArray(test.input)
  if (Array.isArray(tests) && tests.length > 0 && tests.every(isTest)) return tests
  return failed('noReference', `the example's tests are ${show(tests)}, not a list of { input: […], expected }`)
}

async function call(task: CodeTask, signal: AbortSignal | undefined): Promise<CodeResult | Judgment> {
  pool ??= new WorkerPool(ownFile(new URL('./code-worker.js', import.meta.url)), { stackMib: STACK_MIB })
  const limitMs = Math.max(MIN_MS, (task.maxSteps * NS_PER_STEP) / 1e6)
  const outcome = await pool.run<CodeResult>(task, limitMs, signal)
  return 'answer' in outcome ? outcome.answer : failed(outcome.failure, outcome.error)
}

function isList<T>(value: readonly T[] | object): value is readonly T[] {
  return Array.isArray(value)
}

/** Whether two values are the same JSON, ignoring the order of keys. */
function isSameJson(a: unknown, b: unknown): boolean {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b
  if (Array.isArray(a) !== Array.isArray(b)) return false
  const [given, wanted] = [a, b] as [Record<string, unknown>, Record<string, unknown>]
  const keys = Object.keys(wanted)
  if (Object.keys(given).length !== keys.length) return false
  return keys.every((key) => Object.hasOwn(given, key) && isSameJson(given[key], wanted[key]))
}
