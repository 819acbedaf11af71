/** The order of the four systems. */
import { Work } from './clock.ts'
import { InputError } from './errors.ts'
import { bootstrap, infer } from './systems/infer.ts'
import { reset } from './systems/reset.ts'
import { step } from './systems/step.ts'
import { store } from './systems/store.ts'
import type { World } from './world.ts'

/**
 * One step of every lane.
 * @throws InputError if several threads share the lanes: then their trainer moves them.
 */
export function tick(world: World): void {
  if (world.threads.count > 1) throw shared(world)
  tickShare(world)
}

/** A whole rollout: `numSteps` ticks and the bootstrap inference. Throws as `tick` does. */
export function collect(world: World, numSteps: number): void {
  if (world.threads.count > 1) throw shared(world)
  collectShare(world, numSteps)
}

/** A whole rollout of this thread's lanes. */
export function collectShare(world: World, numSteps: number): void {
  for (let t = 0; t < numSteps; t++) tickShare(world)
  bootstrap(world)
  world.clock.mark(Work.bootstrap)
}

function tickShare(world: World): void {
  const { clock } = world
  reset(world) // Lanes whose episode ended begin a new one; all lanes see a running episode.
  clock.mark(Work.reset)
  infer(world) // The policies look and choose.
  clock.mark(Work.infer)
  step(world) // The environments answer.
  clock.mark(Work.step)
  store(world) // The row is closed; ended and truncated lanes are marked.
  clock.mark(Work.store)
}

function shared(world: World): InputError {
  return new InputError('tick', `a world that ${world.threads.count} threads share`, 'trainer.updates(), or threads: 1')
}
