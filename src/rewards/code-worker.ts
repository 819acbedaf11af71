/**
 * A worker that runs programs of unknown origin in QuickJS, an interpreter in WebAssembly without files or network. It
 * is never told what is expected: a program can falsify nothing but its own results.
 */
import type { QuickJSContext, QuickJSHandle, QuickJSSyncVariant } from 'quickjs-emscripten-core'
import { serve } from './serve.ts'

/** A program, the function in it that is called, and the list of its arguments as JSON. */
export interface CodeTask {
  readonly code: string
  readonly functionName: string
  readonly argumentsJson: string
  readonly timeLimitMs: number
  readonly memoryLimitMib: number
}

/** What a call gave: a result as JSON, or why there is none. */
export type CodeResult = { readonly json: string } | { readonly error: string }

const STACK_BYTES = 256 * 1024

/**
 * JSON as it was before the program could change it. What JSON has no words for (NaN, infinities, undefined, functions,
 * bigints, symbols) becomes an object that no JSON of a test is equal to.
 */
const PRELUDE = `(() => {
  const { parse, stringify } = JSON
  const { isFinite } = Number
  const { apply } = Reflect
  const word = String
  const replace = (key, value) =>
    value === undefined || typeof value === 'function' || typeof value === 'bigint' || typeof value === 'symbol' ||
    (typeof value === 'number' && !isFinite(value)) ? { $noJson: word(value) } : value
  return {
    call: (work, json) => apply(work, undefined, parse(json)),
    write: (value) => stringify(value, replace),
  }
})()`

const { newQuickJSWASMModuleFromVariant, Scope } = await import('quickjs-emscripten-core')
const variant = await import('@jitl/quickjs-wasmfile-release-sync')
// The package's types describe its CommonJS half.
const quickjs = await newQuickJSWASMModuleFromVariant((variant as unknown as { default: QuickJSSyncVariant }).default)

/** Thrown for what the program did wrong. */
class Failed extends Error {}

/** The error that a program threw, in words. */
function describe(context: QuickJSContext, handle: QuickJSHandle): string {
  const thrown = context.dump(handle) as unknown
  handle.dispose()
  if (typeof thrown !== 'object' || thrown === null) return `threw ${String(thrown)}`
  const { name, message } = thrown as { name?: unknown; message?: unknown }
  return `${name}: ${message}`
}

/** One call, in an interpreter of its own: no call finds what another one left. */
function run(task: CodeTask): CodeResult {
  const scope = new Scope()
  let result: CodeResult
  try {
    result = { json: resultOf(task, scope) }
  } catch (error) {
    if (!(error instanceof Failed)) throw error // The interpreter broke: what is left of it cannot be tidied up.
    result = { error: error.message }
  }
  scope.dispose()
  return result
}

/** The call's result as JSON; handles belong to the scope. Throws Failed for what the program did wrong. */
function resultOf(task: CodeTask, scope: InstanceType<typeof Scope>): string {
  const runtime = scope.manage(quickjs.newRuntime())
  runtime.setMemoryLimit(task.memoryLimitMib * 2 ** 20)
  runtime.setMaxStackSize(STACK_BYTES)
  const end = Date.now() + task.timeLimitMs
  runtime.setInterruptHandler(() => Date.now() > end)
  const context = scope.manage(runtime.newContext())
  const unwrap = (result: ReturnType<QuickJSContext['evalCode']>): QuickJSHandle => {
    if (result.error !== undefined) throw new Failed(describe(context, result.error))
    return scope.manage(result.value)
  }
  const call = (work: QuickJSHandle, ...list: QuickJSHandle[]): QuickJSHandle =>
    unwrap(context.callFunction(work, context.undefined, ...list))
  /** The value of a promise, after all that was left to do; anything else as it is. */
  const settled = (handle: QuickJSHandle): QuickJSHandle => {
    if (context.getPromiseState(handle).type === 'pending') {
      const jobs = runtime.executePendingJobs()
      if (jobs.error !== undefined) throw new Failed(describe(context, jobs.error))
    }
    const state = context.getPromiseState(handle)
    if (state.type === 'pending') throw new Failed('the promise is never settled')
    if (state.type === 'rejected') throw new Failed(describe(context, state.error))
    return state.notAPromise === true ? handle : scope.manage(state.value)
  }

  const prelude = unwrap(context.evalCode(PRELUDE))
  const callWith = scope.manage(context.getProp(prelude, 'call'))
  const write = scope.manage(context.getProp(prelude, 'write'))
  unwrap(context.evalCode(task.code, 'answer.js', { type: 'global' }))
  const work = unwrap(context.evalCode(task.functionName))
  const returned = call(callWith, work, scope.manage(context.newString(task.argumentsJson)))
  return context.getString(call(write, settled(returned)))
}

serve<CodeTask>((task) => {
  try {
    return { answer: run(task) }
  } catch (error) {
    // The interpreter itself broke, as it does where a program is nested too deeply for its stack; it is not used
    // again.
    return { answer: { error: `the interpreter broke: ${(error as Error).message}` }, isSpent: true }
  }
})
