/**
 * `npm run bench -- peers`: others' programs and ours in turns, in the same minutes. Needs Python 3.11 or newer and the
 * registries of PyPI and npm at the first visit; what cannot be had is left out, and said.
 */
import type { Figure } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { gymnasiumFigures } from './gymnasium.ts'
import { jaxFigures } from './loops.ts'
import { peerPython } from './python.ts'
import { rltoolsFigures } from './rltools.ts'
import { stableBaselinesFigures } from './stable-baselines.ts'
import { tfjsFigures } from './tfjs.ts'

const figures: Figure[] = []
const skipped: string[] = []

/** Adds what `measure` measures. A peer that cannot be had is left out; a failed check ends the bench. */
async function add(peer: string, measure: () => Promise<Figure[]>): Promise<void> {
  try {
    figures.push(...(await measure()))
  } catch (error) {
    const { message } = error as Error
    if (message.startsWith("the bench's check failed")) throw error
    skipped.push(`${peer}: ${message.trim()}`)
    console.log(`SKIPPED: ${peer}: ${message.trim()}`)
  }
}

let python: string | undefined
try {
  python = peerPython()
} catch (error) {
  skipped.push(
    `Gymnasium, NumPy, JAX, Stable-Baselines3, torch, RLtools: no Python with them: ${(error as Error).message.trim()}`,
  )
}
if (python !== undefined) {
  const found = python
  await add('Gymnasium and NumPy', () => gymnasiumFigures(found))
  await add('the JAX twin', () => jaxFigures(found))
  await add('RLtools', () => rltoolsFigures(found))
  await add('Stable-Baselines3', () => stableBaselinesFigures(found))
}
await add('tfjs', tfjsFigures)
reportRoom('peers', figures, skipped)
