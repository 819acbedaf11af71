/**
 * Environments as other systems write them: an object with `reset` and `step`, which may ask others and take their time. A step
 * answers with one object; its parts have names, so that an end and a cut stay apart. What such an object answers is checked, and
 * each answer has a deadline.
 */
import { checkOptions, InputError, show, unknownWord } from '../base/errors.ts'
import { checkFlags, checkParts, RESET_PARTS, STEP_PARTS } from '../environments/bridges/answer.ts'
import { realTime, type Time } from '../fleet/time.ts'
import { answerInTime } from './deadline.ts'

/** What an episode begins with. */
export interface ResetResult<O> {
  readonly observation: O
  readonly info?: Readonly<Record<string, unknown>>
}

/** What a step comes to. */
export interface StepResult<O> extends ResetResult<O> {
  /** Null where it cannot be told; a list where the action was one of several answers. */
  readonly reward: number | null | readonly number[]
  /** The episode ended; it was cut off: one of them, or neither. */
  readonly terminated: boolean
  readonly truncated: boolean
}

/** An environment that may answer later. Once the signal is aborted nobody waits for the answer any longer. */
export interface EnvironmentService<O = unknown, A = unknown> {
  reset(options: { readonly seed?: number }, signal: AbortSignal): ResetResult<O> | Promise<ResetResult<O>>
  step(action: A, signal: AbortSignal): StepResult<O> | Promise<StepResult<O>>
  /** Gives back what it holds. */
  close?(): void | Promise<void>
}

/** A registered thing by its name, with what it is made of. */
export interface Abstraction {
  readonly type: string
  readonly args?: Readonly<Record<string, unknown>>
}

/** How long an environment's answers are waited for. */
export interface ServiceOptions {
  /** Seconds until a reset, or a step, counts as failed. Default 60. */
  readonly stepSeconds?: number
  /** What deadlines wait in; default the machine's. */
  readonly time?: Time
}

/** An environment whose answers are checked and come in time. */
export interface CheckedService<O, A> {
  reset(options?: { readonly seed?: number }): Promise<ResetResult<O>>
  step(action: A): Promise<StepResult<O>>
  close(): Promise<void>
}

/**
 * The environment with its answers checked, each of them within its time.
 * @throws InputError for an object without `reset` or `step`. `step` and `reset` throw a TypeError for an answer that is an array,
 * and an InputError for one that lacks a part or does not come.
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
        throw new InputError(`${subject}, reward`, show(value), 'a finite number, or null where it cannot be told')
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

/** Lets `makeEnvironment` find a service by its name. @throws InputError for a name that is taken. */
export function registerEnvironment(name: string, factory: ServiceFactory): void {
  register('environment', services, name, factory)
}

/**
 * The registered environment of that name, with its answers checked and in time.
 * @throws InputError that names the nearest one.
 */
export function makeEnvironment(
  environment: Abstraction,
  options: ServiceOptions = {},
): CheckedService<unknown, unknown> {
  const service = made('environment', services, environment) as EnvironmentService
  return checkedService(service, options, `environment ${environment.type}`)
}

/** Keeps a factory under its name. */
export function register<F>(noun: string, factories: Map<string, F>, name: string, factory: F): void {
  if (typeof name !== 'string' || name === '') throw new InputError(`${noun} name`, show(name), 'a name')
  if (typeof factory !== 'function') throw new InputError(`${noun} ${name}`, show(factory), 'a function that makes it')
  if (factories.has(name)) throw new InputError(`${noun} ${name}`, 'a second one', 'a name that is not taken')
  factories.set(name, factory)
}

/** What the factory of that name makes of its arguments. */
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
