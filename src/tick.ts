/** The order of the four systems. */
import { bootstrap, infer } from './systems/infer.ts'
import { reset } from './systems/reset.ts'
import { step } from './systems/step.ts'
import { store } from './systems/store.ts'
import type { World } from './world.ts'

/** One step of every lane. */
export function tick(world: World): void {
  reset(world) // Lanes whose episode ended begin a new one; all lanes see a running episode.
  infer(world) // The policies look and choose.
  step(world) // The environments answer.
  store(world) // The row is closed; ended and truncated lanes are marked.
}

/** A whole rollout: `numSteps` ticks and the bootstrap inference. */
export function collect(world: World, numSteps: number): void {
  for (let t = 0; t < numSteps; t++) tick(world)
  bootstrap(world)
}
