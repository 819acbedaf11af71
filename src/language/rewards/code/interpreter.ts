/**
 * Runs untrusted programs in QuickJS, compiled to WebAssembly without files or network. A run depends on the program
 * only: it has a fixed number of steps, its clock stands at 1970 in UTC, its random numbers are fixed, and each call
 * has a new interpreter. It never sees the expected result, so it can falsify only its own.
 */
import { readFile } from 'node:fs/promises'
import type { QuickJSContext, QuickJSHandle, QuickJSSyncVariant, QuickJSWASMModule } from 'quickjs-emscripten-core'
import { FUEL, withFuel } from './fuel.ts'

/** A program, the function to call, and the list of its arguments as JSON. */
export interface CodeTask {
  readonly code: string
  readonly functionName: string
  readonly argumentsJson: string
  /** Limit of the interpreter's internal function calls and loop iterations, parsing included. */
  readonly maxSteps: number
  /** Memory of the whole interpreter, at least MIN_MEMORY_MIB. */
  readonly memoryLimitMib: number
}

/** The interpreter's initial memory. Its own memory limit ignores buffers, so it is not used. */
export const MIN_MEMORY_MIB = 16
const PAGES_PER_MIB = 16

/** A call's result as JSON, or the error. `excess`: it ran out of steps, or nested deeper than the stack. */
export type CodeResult = { readonly json: string } | { readonly error: string; readonly excess?: 'steps' | 'nesting' }

/** Bytes of the interpreter's stack: infinite recursion throws when it is full. */
const STACK_BYTES = 256 * 1024

/** JSON functions saved from changes. Values without JSON (NaN, functions …) become an object that equals no test's. */
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

const PACKAGE = '@jitl/quickjs-wasmfile-release-sync'

const core = await import('quickjs-emscripten-core')
// The package's types describe its CommonJS half.
const variant = ((await import('@jitl/quickjs-wasmfile-release-sync')) as unknown as { default: QuickJSSyncVariant })
  .default
const metered = await WebAssembly.compile(withFuel(await readFile(new URL(import.meta.resolve(`${PACKAGE}/wasm`)))))

interface Interpreter {
  readonly quickjs: QuickJSWASMModule
  readonly fuel: WebAssembly.Global<'i64'>
}

/** Names of two imports of the module in version 0.32 of the package: the time of day, and local time. */
const CLOCK = 'p'
const LOCAL_TIME = 'm'
/** Bytes of C's `struct tm`, without its last field, which the caller fills. */
const TM_BYTES = 40

async function newInterpreter(memoryLimitMib: number): Promise<Interpreter> {
  const maximum = memoryLimitMib * PAGES_PER_MIB
  const wasmMemory = new WebAssembly.Memory({ initial: MIN_MEMORY_MIB * PAGES_PER_MIB, maximum })
  let fuel: WebAssembly.Global<'i64'> | undefined
  const instantiateWasm = (
    imports: WebAssembly.Imports,
    done: (instance: WebAssembly.Instance, module: WebAssembly.Module) => void,
  ): object => {
    const host = imports.a as Record<string, unknown>
    host[CLOCK] = () => 0
    host[LOCAL_TIME] = (_: bigint, tm: number) => new Uint8Array(wasmMemory.buffer, tm, TM_BYTES).fill(0)
    const instance = new WebAssembly.Instance(metered, imports)
    fuel = instance.exports[FUEL] as WebAssembly.Global<'i64'>
    done(instance, metered)
    return {}
  }
  const own = core.newVariant(variant, { wasmMemory, emscriptenModule: { instantiateWasm } as object })
  const quickjs = await core.newQuickJSWASMModuleFromVariant(own)
  return { quickjs, fuel: fuel! }
}

/** Thrown for a fault of the program. */
class Failed extends Error {}

function describe(context: QuickJSContext, handle: QuickJSHandle): string {
  const thrown = context.dump(handle) as unknown
  handle.dispose()
  if (typeof thrown !== 'object' || thrown === null) return `threw ${String(thrown)}`
  const { name, message } = thrown as { name?: unknown; message?: unknown }
  return `${name}: ${message}`
}

/** Calls a program's function. @throws Error if the interpreter cannot start, which is not the program's fault. */
export async function runProgram(task: CodeTask): Promise<CodeResult> {
  const { quickjs, fuel } = await newInterpreter(task.memoryLimitMib)
  const runtime = quickjs.newRuntime()
  runtime.setMaxStackSize(STACK_BYTES)
  const context = runtime.newContext()
  const unwrap = (result: ReturnType<QuickJSContext['evalCode']>): QuickJSHandle => {
    if (result.error !== undefined) throw new Failed(describe(context, result.error))
    return result.value
  }
  const call = (work: QuickJSHandle, ...list: QuickJSHandle[]): QuickJSHandle =>
    unwrap(context.callFunction(work, context.undefined, ...list))
  /** The value of a promise after all pending jobs; other values unchanged. */
  const settled = (handle: QuickJSHandle): QuickJSHandle => {
    if (context.getPromiseState(handle).type === 'pending') {
      const jobs = runtime.executePendingJobs()
      if (jobs.error !== undefined) throw new Failed(describe(context, jobs.error))
    }
    const state = context.getPromiseState(handle)
    if (state.type === 'pending') throw new Failed('the promise is never settled')
    if (state.type === 'rejected') throw new Failed(describe(context, state.error))
    return state.notAPromise === true ? handle : state.value
  }

  const prelude = unwrap(context.evalCode(PRELUDE))
  const [callWith, write] = [context.getProp(prelude, 'call'), context.getProp(prelude, 'write')]
  fuel.value = BigInt(task.maxSteps)
  try {
    unwrap(context.evalCode(task.code, 'answer.js', { type: 'global' }))
    const work = unwrap(context.evalCode(task.functionName))
    const returned = call(callWith, work, context.newString(task.argumentsJson))
    return { json: context.getString(call(write, settled(returned))) }
  } catch (error) {
    // After a trap the interpreter is inconsistent; the garbage collector frees it, as all others.
    if (fuel.value < 0n) return { error: `ran out of its ${task.maxSteps} steps`, excess: 'steps' }
    if (error instanceof Failed) return { error: error.message }
    if (error instanceof RangeError) return { error: `nested too deeply: ${error.message}`, excess: 'nesting' }
    return { error: `broke the interpreter: ${(error as Error).message}` }
  }
}
