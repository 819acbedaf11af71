/** Functions that a run calls at its events, as programs pass them and modules export them. */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import type { Cohort } from '../../world/cohort.ts'
import type { RunListeners } from './kind.ts'
import type { Run } from './run.ts'

/** The result of `defineCallbacks`: the listeners of a run. */
export interface Callbacks {
  (run: Run): RunListeners<Cohort>
  readonly id: string
}

const EVENTS = ['onUpdate', 'onEvaluation', 'onCheckpoint', 'signal'] as const

/**
 * Callbacks that the command line takes from a module (`train … callbacks=./mine.mjs`): `listen` gets the run before it trains and returns
 * what to call at its events. A `signal` in the answer ends the run, with a checkpoint, once it is aborted.
 * @throws InputError for a definition without these fields, and for an answer with other fields or values.
 * @example
 * export const early = defineCallbacks({
 *   id: 'early',
 *   listen() {
 *     const stop = new AbortController()
 *     return { signal: stop.signal, onUpdate: ({ seconds }) => seconds > 60 && stop.abort() }
 *   },
 * })
 */
export function defineCallbacks(definition: {
  readonly id: string
  readonly listen: (run: Run) => RunListeners<Cohort>
}): Callbacks {
  checkGiven('options of defineCallbacks', definition, ['id', 'listen'])
  const { id, listen } = definition
  if (typeof id !== 'string' || id === '') throw new InputError('callbacks id', show(id), 'a name, like early')
  if (typeof listen !== 'function') throw new InputError(`${id} listen`, show(listen), 'a function of a run')
  const callbacks = (run: Run): RunListeners<Cohort> => {
    const listeners = listen(run)
    const other = Object.keys(Object(listeners)).find((key) => !(EVENTS as readonly string[]).includes(key))
    const isObject = typeof listeners === 'object' && listeners !== null && !(listeners instanceof Promise)
    if (!isObject || other !== undefined)
      throw new InputError(`${id} listen`, other ?? show(listeners), `an object with any of ${EVENTS.join(', ')}`)
    const wrong = EVENTS.find((event) => {
      const given: unknown = listeners[event]
      return given !== undefined && !(event === 'signal' ? given instanceof AbortSignal : typeof given === 'function')
    })
    if (wrong === undefined) return listeners
    throw new InputError(`${id} ${wrong}`, show(listeners[wrong]), wrong === 'signal' ? 'an AbortSignal' : 'a function')
  }
  return Object.assign(callbacks, { id })
}

/** Listeners that call all of these in order, with a signal that aborts with the first of their signals. */
export function joinListeners(all: readonly RunListeners<Cohort>[]): RunListeners<Cohort> {
  checkGiven('listeners', all, 'a list')
  const signals = all.flatMap(({ signal }) => (signal === undefined ? [] : [signal]))
  return {
    async onUpdate(metrics, progress) {
      for (const each of all) await each.onUpdate?.(metrics, progress)
    },
    async onEvaluation(judgment, at) {
      for (const each of all) await each.onEvaluation?.(judgment, at)
    },
    async onCheckpoint(at) {
      for (const each of all) await each.onCheckpoint?.(at)
    },
    ...(signals.length > 0 && { signal: AbortSignal.any(signals) }),
  }
}
