/**
 * Rewards for programs in JavaScript: the completion's function is called with the arguments of the example's tests, in
 * an interpreter with limits of time and memory, in a worker that can be killed.
 */
import type { Example } from '../environments/text.ts'
import { InputError, show } from '../errors.ts'
import { text, toggle, whole } from '../settings.ts'
import type { CodeResult, CodeTask } from './code-worker.ts'
import { defineReward, failed, type Judgement } from './reward.ts'
import { WorkerPool } from './workers.ts'

/** Milliseconds after its time limit in which the interpreter has to notice, or its worker is killed. */
const GRACE_MS = 500

let pool: WorkerPool | undefined

/** A test of a program: the arguments of the call, and the result. Both are JSON. */
export interface CodeTest {
  readonly input: readonly unknown[]
  readonly expected: unknown
}

/** The last fenced block of code in a completion; all of it where there is none. `export` before a declaration goes. */
export function extractCode(completion: string): string {
  const fences = completion.split(/^[ \t]*```[^\n]*$/m)
  const code = fences.length < 3 ? completion : fences[fences.length % 2 === 1 ? fences.length - 2 : fences.length - 1]!
  return code.replace(/^export\s+(?:default\s+)?(?=(?:async\s+)?(?:function|const|let|class)\b)/gm, '')
}

/**
 * Whether a program passes the tests of its example: 1 for all of them, else 0; with `partial` the share that it
 * passes. The column `tests` holds a list of `{ input, expected }`, with the list of arguments and the result as JSON;
 * the column `functionName` says what is called, else the setting does. A program that throws, runs on after its time
 * limit or uses more memory than it may fails that test: this is the program's fault, and no failure of the reward.
 * Null where the example has no tests, or the worker died.
 * @throws InputError if the function's name is none.
 */
export const codeReward = defineReward({
  id: 'code',
  settings: {
    functionName: text('solve', 'the function that is called, where the example does not say'),
    partial: toggle(false, 'the share of tests that pass, instead of all or nothing'),
    timeLimitMs: whole(1000, 'milliseconds for one call', { min: 1, max: 3_600_000 }),
    memoryLimitMib: whole(64, 'MiB for one call', { min: 1, max: 1024 }),
  },
  make: (settings) => {
    checkName('code.functionName', settings.functionName)
    return async (_, completion, example, signal) => {
      const tests = testsOf(example)
      if (!isList(tests)) return tests
      const { functionName = settings.functionName } = example
      checkName('the example’s functionName', functionName)
      const code = extractCode(completion)
      let passed = 0
      for (const { input, expected } of tests) {
        const { timeLimitMs, memoryLimitMib } = settings
        const task = { code, functionName, argumentsJson: JSON.stringify(input), timeLimitMs, memoryLimitMib }
        const result = await call(task, signal)
        if ('failure' in result) return result
        if ('json' in result && isSameJson(JSON.parse(result.json), expected)) passed++
        else if (!settings.partial) break
      }
      const share = passed / tests.length
      return { value: settings.partial ? share : Math.floor(share), components: { passed: share } }
    }
  },
})

function checkName(subject: string, name: unknown): asserts name is string {
  if (typeof name !== 'string' || !/^[A-Za-z_$][\w$]*$/.test(name)) {
    throw new InputError(subject, show(name), 'the name of a function, like solve')
  }
}

function testsOf({ tests }: Example): readonly CodeTest[] | Judgement {
  const isTest = (test: unknown): boolean =>
    typeof test === 'object' && test !== null && 'expected' in test && 'input' in test && Array.isArray(test.input)
  if (Array.isArray(tests) && tests.length > 0 && tests.every(isTest)) return tests
  return failed('noReference', `the example's tests are ${show(tests)}, no list of { input: […], expected }`)
}

async function call(task: CodeTask, signal: AbortSignal | undefined): Promise<CodeResult | Judgement> {
  pool ??= new WorkerPool(new URL('./code-worker.js', import.meta.url))
  const outcome = await pool.run<CodeResult>(task, task.timeLimitMs + GRACE_MS, signal)
  if ('answer' in outcome) return outcome.answer
  return outcome.failure === 'hung' ? { error: 'killed at its time limit' } : failed(outcome.failure, outcome.error)
}

function isList<T>(value: readonly T[] | object): value is readonly T[] {
  return Array.isArray(value)
}

/** Whether two values are the same JSON; the order of an object's keys does not count. */
function isSameJson(a: unknown, b: unknown): boolean {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b
  if (Array.isArray(a) !== Array.isArray(b)) return false
  const [given, wanted] = [a, b] as [Record<string, unknown>, Record<string, unknown>]
  const keys = Object.keys(wanted)
  if (Object.keys(given).length !== keys.length) return false
  return keys.every((key) => Object.hasOwn(given, key) && isSameJson(given[key], wanted[key]))
}
