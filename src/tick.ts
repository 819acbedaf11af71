/** The order of the four systems. */
import { Work } from './clock.ts'
import type { Cohort } from './cohort.ts'
import { InputError } from './errors.ts'
import { bootstrap } from './systems/bootstrap.ts'
import { infer } from './systems/infer.ts'
import { reset } from './systems/reset.ts'
import { step } from './systems/step.ts'
import { store } from './systems/store.ts'
import { canGoOn, type TextCohort } from './text-cohort.ts'
import type { World } from './world.ts'

/**
 * One step of every lane. Where a policy answers later, its cohort goes on when the answer is there, and the tick is a
 * promise: of the first answer if every lane waits, else of a turn of the event loop, in which answers can arrive.
 *
 * @throws InputError if several threads share the lanes: then their trainer moves them.
 */
export function tick(world: World): void | Promise<void> {
  if (world.threads.count > 1 && world.cohorts.length > 0) throw shared(world)
  const moved = move(world)
  return moved === undefined ? awaitAnswers(world) : moved.then(() => awaitAnswers(world))
}

/** A whole rollout: `numSteps` steps of every lane and the bootstrap inference. A promise, and throws, as `tick`. */
export function collect(world: World, numSteps: number): void | Promise<void> {
  if (world.threads.count > 1) throw shared(world)
  return drive(collectShare(world, numSteps))
}

/** A whole rollout of this thread's lanes. Yields what has to be awaited before it can go on. */
export function* collectShare(world: World, numSteps: number): Generator<void | Promise<void>, void> {
  for (const cohort of world.cohorts) cohort.ticksLeft = numSteps
  try {
    while (world.cohorts.some(isUnderWay)) {
      const moved = move(world)
      if (moved !== undefined) yield moved
      const waiting = awaitAnswers(world)
      if (waiting !== undefined) yield waiting
    }
  } finally {
    for (const cohort of world.cohorts) {
      cohort.ticksLeft = Number.POSITIVE_INFINITY
      cohort.rests = cohort.answer !== null
    }
  }
  const valued = bootstrap(world)
  if (valued !== undefined) yield valued
  world.clock.mark(Work.bootstrap)
}

/**
 * One step of every lane that need not wait for an answer. A promise where other threads speak in conversations too; whoever
 * stops stops after it.
 */
export function move(world: World): void | Promise<void> {
  const { clock } = world
  reset(world) // Lanes whose episode ended begin a new one; all lanes see a running episode.
  clock.mark(Work.reset)
  const inferred = infer(world) // The policies look and choose.
  return inferred === undefined ? conclude(world) : inferred.then(() => conclude(world))
}

function conclude(world: World): void {
  const { clock } = world
  clock.mark(Work.infer)
  step(world) // The environments answer.
  clock.mark(Work.step)
  store(world) // The row is closed; ended and truncated lanes are marked.
  clock.mark(Work.store)
}

function isUnderWay({ ticksLeft }: Cohort): boolean {
  return ticksLeft > 0
}

/** What has to be waited for before lanes can go on; undefined if no policy owes an answer. */
export function awaitAnswers({ cohorts, conversations }: World): Promise<void> | undefined {
  if (!cohorts.some(isAwaited) && !conversations.some(isOwed)) return undefined
  if (cohorts.some(acts) || conversations.some(canGoOn)) return new Promise((resolve) => setTimeout(resolve, 0))
  const answers = cohorts.filter(isAwaited).map(({ answer }) => answer!.arrival)
  const replies = conversations.flatMap(({ pending }) => pending.filter((reply) => reply !== null))
  return Promise.race([...answers, ...replies.map(({ arrival }) => arrival)])
}

function isOwed({ pending }: TextCohort): boolean {
  return pending.some((reply) => reply !== null)
}

function isAwaited({ answer }: Cohort): boolean {
  return answer !== null
}

function acts({ rests }: Cohort): boolean {
  return !rests
}

function drive(steps: Generator<void | Promise<void>, void>): void | Promise<void> {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return
    if (value !== undefined) {
      return value.then(
        () => drive(steps),
        (cause) => void steps.throw(cause),
      )
    }
  }
}

function shared(world: World): InputError {
  return new InputError('tick', `a world that ${world.threads.count} threads share`, 'trainer.updates(), or threads: 1')
}
