/** Helpers of a fleet's learner in the test's own process. They import the modules of what is built, as the learner must. */
import type { MemoryBus } from '../../dist/src/fleet/bus/memory-bus.js'
import { runHelper } from '../../dist/src/training/fleet/fleet-helper.js'

/** Starts helpers on a bus. `joined` and `ended` wait for all of them. */
export function helpersOn(bus: MemoryBus, count: number) {
  const starts = Array.from({ length: count }, () => {
    let join = () => {}
    const joined = new Promise<void>((resolve) => {
      join = resolve
    })
    return { joined, ended: runHelper(bus, { tell: (text) => void (text.startsWith('helps') && join()) }) }
  })
  return {
    joined: () => Promise.all(starts.map(({ joined }) => joined)),
    ended: () => Promise.all(starts.map(({ ended }) => ended)),
  }
}
