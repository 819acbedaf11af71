/**
 * Runs programs of unknown origin in QuickJS, an interpreter in WebAssembly without files or network. How far a program
 * gets depends on nothing but the program: it has so many steps, which no load of the machine changes, its clock stands
 * at 1970 in UTC, its random numbers are always the same, and each call has an interpreter of its own. It is never told
 * what is expected: a program can falsify nothing but its own results.
 */
import { readFile } from 'node:fs/promises'
import type { QuickJSContext, QuickJSHandle, QuickJSSyncVariant, QuickJSWASMModule } from 'quickjs-emscripten-core'
import { FUEL, withFuel } from './fuel.ts'

/** A program, the function in it that is called, and the list of its arguments as JSON. */
export interface CodeTask {
  readonly code: string
  readonly functionName: string
  readonly argumentsJson: string
  /** Calls of the interpreter's own functions and turns of its own loops, from the reading of the program on. */
  readonly maxSteps: number
  /** Memory of the interpreter with all that is in it, at least MIN_MEMORY_MIB. */
  readonly memoryLimitMib: number
}

/** What the interpreter begins with. Its own limit of memory does not count what lies in buffers, so it is not used. */
export const MIN_MEMORY_MIB = 16
const PAGES_PER_MIB = 16

/**
 * What a call gave: a result as JSON, or why there is none. `excess` tells that it ran out of steps, or was nested more
 * deeply than the interpreter can follow.
 */
export type CodeResult = { readonly json: string } | { readonly error: string; readonly excess?: 'steps' | 'nesting' }

/** Bytes of the interpreter's own stack: a program that calls itself for ever throws an error when it is full. */
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

const PACKAGE = '@jitl/quickjs-wasmfile-release-sync'

const core = await import('quickjs-emscripten-core')
// The package's types describe its CommonJS half.
const variant = ((await import('@jitl/quickjs-wasmfile-release-sync')) as unknown as { default: QuickJSSyncVariant })
  .default
const metered = await WebAssembly.compile(withFuel(await readFile(new URL(import.meta.resolve(`${PACKAGE}/wasm`)))))

/** An interpreter that nobody has used, and the fuel that it runs on. */
interface Interpreter {
  readonly quickjs: QuickJSWASMModule
  readonly fuel: WebAssembly.Global<'i64'>
}

/** Names that version 0.32 of the package has for what its module imports: the time of day, and a time in local words. */
const CLOCK = 'p'
const LOCAL_TIME = 'm'
/** Bytes of C's `struct tm`, but for its last field, which the caller fills. */
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

/**
 * One call of a program's function.
 * @throws Error where there is no interpreter: that is no fault of the program.
 */
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
  /** The value of a promise, after all that was left to do; anything else as it is. */
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
    // What follows a trap is an interpreter in pieces. It is left to the collector of garbage, as each one is.
    if (fuel.value < 0n) return { error: `ran out of its ${task.maxSteps} steps`, excess: 'steps' }
    if (error instanceof Failed) return { error: error.message }
    if (error instanceof RangeError) return { error: `nested too deeply: ${error.message}`, excess: 'nesting' }
    return { error: `broke the interpreter: ${(error as Error).message}` }
  }
}
