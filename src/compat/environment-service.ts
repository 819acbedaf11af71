/** Environments as in other systems: objects with asynchronous `reset` and `step`, checked, with deadlines. */
import { checkOptions, InputError, show, unknownWord } from '../base/errors.ts'
import { checkFlags, checkParts, RESET_PARTS, STEP_PARTS } from '../environments/bridges/answer.ts'
import { realTime, type Time } from '../fleet/time.ts'
import { answerInTime } from './deadline.ts'

/** The start of an episode. */
export interface ResetResult<O> {
  readonly observation: O
  readonly info?: Readonly<Record<string, unknown>>
}

/** The result of an environment's step. */
export interface StepResult<O> extends ResetResult<O> {
  /** Null if unknown; a list if the action was one of several answers. */
  readonly reward: number | null | readonly number[]
  /** Whether the episode ended, or was cut off; at most one is true. */
  readonly terminated: boolean
  readonly truncated: boolean
}

/** An environment that may answer later. When the signal aborts, the answer is no longer needed. */
export interface EnvironmentService<O = unknown, A = unknown> {
  reset(options: { readonly seed?: number }, signal: AbortSignal): ResetResult<O> | Promise<ResetResult<O>>
  step(action: A, signal: AbortSignal): StepResult<O> | Promise<StepResult<O>>
  close?(): void | Promise<void>
}

/** The name of something registered, with its arguments. */
export interface Abstraction {
  readonly type: string
  readonly args?: Readonly<Record<string, unknown>>
}

/** The deadline of an environment's answers, and its clock. */
export interface ServiceOptions {
  /** Seconds after which a reset or step has failed; default 60. */
  readonly stepSeconds?: number
  /** The clock of deadlines; default the machine's. */
  readonly time?: Time
}

/** An environment with checked answers and deadlines. */
export interface CheckedService<O, A> {
  reset(options?: { readonly seed?: number }): Promise<ResetResult<O>>
  step(action: A): Promise<StepResult<O>>
  close(): Promise<void>
}

/**
 * Adds checks and deadlines to an environment's answers.
 * @throws InputError for an object without `reset` or `step`. `step` and `reset` throw a TypeError for an array, and an
 * InputError for an incomplete or late answer.
 */
export function checkedService<O, A>(
  service: EnvironmentService<O, A>,
  options: ServiceOptions = {},
  name = 'environment',
): CheckedService<O, A> {
  checkOptions('an environment service', options, ['stepSeconds', 'time'])
  const { stepSeconds = 60, time = realTime } = options
  if (!(stepSeconds > 0)) throw new InputError('stepSeconds', show(stepSeconds), 'a number above 0')
  for (const method of ['reset', 'step'] as const) {
    if (typeof service?.[method] === 'function') continue
    throw new InputError(`${name}, ${method}`, show(service?.[method]), 'a function')
  }
  let steps = 0
  return {
    async reset(given = {}) {
      const subject = `reset of ${name}`
      const answer = await answerInTime(subject, (signal) => service.reset(given, signal), stepSeconds, time)
      checkParts(subject, answer, RESET_PARTS)
      steps = 0
      return answer
    },
    async step(action) {
      const subject = `step ${steps++} of ${name}`
      const answer = await answerInTime(subject, (signal) => service.step(action, signal), stepSeconds, time)
      checkParts(subject, answer, STEP_PARTS)
      const { reward } = answer
      for (const value of Array.isArray(reward) ? reward : [reward]) {
        if (value === null || Number.isFinite(value)) continue
        throw new InputError(`${subject}, reward`, show(value), 'a finite number, or null if unknown')
      }
      checkFlags(subject, answer)
      return answer
    },
    async close() {
      await service.close?.()
    },
  }
}

/** Makes a service from its arguments. */
export type ServiceFactory = (args: never) => EnvironmentService<unknown, never>

const services = new Map<string, ServiceFactory>()

/** Registers a service for `makeEnvironment`. @throws InputError for a name that is taken. */
export function registerEnvironment(name: string, factory: ServiceFactory): void {
  register('environment', services, name, factory)
}

/** Makes a registered environment, with checks and deadlines. @throws InputError that names the nearest name. */
export function makeEnvironment(
  environment: Abstraction,
  options: ServiceOptions = {},
): CheckedService<unknown, unknown> {
  const service = made('environment', services, environment) as EnvironmentService
  return checkedService(service, options, `environment ${environment.type}`)
}

export function register<F>(noun: string, factories: Map<string, F>, name: string, factory: F): void {
  if (typeof name !== 'string' || name === '') throw new InputError(`${noun} name`, show(name), 'a name')
  if (typeof factory !== 'function') throw new InputError(`${noun} ${name}`, show(factory), 'a function that makes it')
  if (factories.has(name)) throw new InputError(`${noun} ${name}`, 'a second one', 'a name that is not taken')
  factories.set(name, factory)
}

/** Makes a registered thing from its arguments. */
export function made<F extends (args: never) => unknown>(
  noun: string,
  factories: ReadonlyMap<string, F>,
  abstraction: Abstraction,
): ReturnType<F> {
  checkOptions(noun, abstraction, ['type', 'args'])
  const { type, args = {} } = abstraction
  const factory = factories.get(type)
  if (factory === undefined) throw unknownWord(noun, type, [...factories.keys()])
  return factory(args as never) as ReturnType<F>
}
