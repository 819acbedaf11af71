/** The base of users' backends: orders calls, and handles failed ones. `defineArrayBackend` does more. */
import { InputError } from '../../base/errors.ts'
import type { BackendCall, BackendContext, BackendDefinition, TrainFuture, TrainingBackend } from './backend.ts'

/** A call's implementation: returns the result, or a promise of it. */
type Done<Call> = Call extends (...given: infer Given) => TrainFuture<infer Result>
  ? (...given: Given) => Result | Promise<Result>
  : never

/** Implements a backend's calls, one at a time. */
export interface BackendWork {
  start: Done<TrainingBackend['start']>
  forward: Done<TrainingBackend['forward']>
  forwardBackward?: Done<NonNullable<TrainingBackend['forwardBackward']>>
  backward: Done<TrainingBackend['backward']>
  optimStep: Done<TrainingBackend['optimStep']>
  saveCheckpoint: Done<TrainingBackend['saveCheckpoint']>
  loadCheckpoint: Done<TrainingBackend['loadCheckpoint']>
  getWeights: Done<TrainingBackend['getWeights']>
  loadWeights: Done<TrainingBackend['loadWeights']>
  takeUpColumns?: Done<NonNullable<TrainingBackend['takeUpColumns']>>
  close?: NonNullable<TrainingBackend['close']>
  /** Whether a gradient or a step that is refused with an `InputError` has changed nothing, so later calls go on; default: no. */
  refusesUnchanged?(call: 'forwardBackward' | 'backward' | 'optimStep'): boolean
}

/** A backend from its implementation. `create` is called once per training cohort. */
export function defineBackend(id: string, create: (context: BackendContext) => BackendWork): BackendDefinition {
  return { id, create: (context) => backendOf(id, create(context)) }
}

/** Calls that compute a gradient, change the training state, or make a poisoned state known again. */
const MAKES_GRADIENT: readonly BackendCall[] = ['forwardBackward', 'backward']
const CHANGES: readonly BackendCall[] = [...MAKES_GRADIENT, 'start', 'optimStep']
const LOADS: readonly BackendCall[] = ['loadCheckpoint', 'takeUpColumns']

export function backendOf(id: string, work: BackendWork): TrainingBackend {
  let numCalls = 0
  let numOpen = 0
  /** The last call. The next one begins when it has settled. */
  let last: Promise<unknown> = Promise.resolve()
  let hasGradient = false
  let failure: { readonly call: BackendCall; readonly cause: unknown } | null = null

  const check = (call: BackendCall): void => {
    if (failure !== null && !LOADS.includes(call)) {
      const { cause } = failure
      const got = `a call after ${failure.call}() failed (${cause instanceof Error ? cause.message : String(cause)})`
      throw new InputError(`backend ${id}, ${call}()`, got, 'loadCheckpoint() before it', { cause })
    }
    if (hasGradient && MAKES_GRADIENT.includes(call)) {
      throw new InputError(`backend ${id}, ${call}()`, 'a gradient before the step of the last', 'optimStep()')
    }
    if (!hasGradient && call === 'optimStep') {
      throw new InputError(`backend ${id}, optimStep()`, 'no gradient', 'forwardBackward() or backward() before it')
    }
  }
  const perform = async <T>(call: BackendCall, action: () => T | Promise<T>): Promise<T> => {
    check(call)
    const hadGradient = hasGradient
    if (call === 'optimStep' || call === 'start') hasGradient = false
    try {
      const result = await action()
      if (MAKES_GRADIENT.includes(call)) hasGradient = true
      if (LOADS.includes(call)) [hasGradient, failure] = [false, null]
      return result
    } catch (cause) {
      if (call === 'forwardBackward' || call === 'backward' || call === 'optimStep') {
        const isUnchanged = cause instanceof InputError && work.refusesUnchanged?.(call) === true
        if (isUnchanged) hasGradient = hadGradient
        else failure = { call, cause }
      } else if (CHANGES.includes(call)) failure = { call, cause }
      throw cause
    }
  }
  const inTurn = <T>(call: BackendCall, action: () => T | Promise<T>): TrainFuture<T> => {
    let isDone = false
    const begin = () => perform(call, action)
    // Start at once if no call is running.
    const promise = numOpen === 0 ? begin() : last.then(begin)
    numOpen++
    const settle = (): void => {
      isDone = true
      numOpen--
    }
    last = promise.then(settle, settle)
    return Object.assign(promise, { call, index: numCalls++, result: () => promise, done: () => isDone })
  }

  const { forwardBackward, takeUpColumns } = work
  return {
    id,
    start: () => inTurn('start', () => work.start()),
    forward: (...given) => inTurn('forward', () => work.forward(...given)),
    ...(forwardBackward && {
      forwardBackward: (...given) => inTurn('forwardBackward', () => forwardBackward.apply(work, given)),
    }),
    backward: (...given) => inTurn('backward', () => work.backward(...given)),
    optimStep: (...given) => inTurn('optimStep', () => work.optimStep(...given)),
    saveCheckpoint: (name) => inTurn('saveCheckpoint', () => work.saveCheckpoint(name)),
    loadCheckpoint: (name) => inTurn('loadCheckpoint', () => work.loadCheckpoint(name)),
    getWeights: (version) => inTurn('getWeights', () => work.getWeights(version)),
    loadWeights: (weights) => inTurn('loadWeights', () => work.loadWeights(weights)),
    ...(takeUpColumns && { takeUpColumns: () => inTurn('takeUpColumns', () => takeUpColumns.call(work)) }),
    ...(work.close && { close: () => work.close!() }),
  }
}
