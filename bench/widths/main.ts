/**
 * `npm run bench -- widths`: GFLOP/s of layers and of whole PPO updates by width and by rows, ours beside torch, JAX and the C
 * twin. Needs Python 3.11 or newer and PyPI at the first visit, and gcc for the twin.
 */
import { availableParallelism } from 'node:os'
import { Companion } from '../companion.ts'
import { peerPython, peerSource } from '../peers/python.ts'
import { reportRoom } from '../report.ts'
import { layerFigures } from './layers.ts'
import { shapeFigures } from './shapes.ts'
import type { Answer } from './sizes.ts'
import { updateFigures } from './updates.ts'

const python = peerPython()
const counts = availableParallelism() > 1 ? [1, 2] : [1]
const byThreads = new Map(
  counts.map((threads) => [threads, new Companion(python, [peerSource('widths.py'), '--threads', `${threads}`])]),
)
const first = byThreads.get(1)!
const skipped: string[] = []
try {
  const [torch, jax] = [
    await first.ask<Answer>('torch product 16 64 1'),
    await first.ask<Answer>('jax product 16 64 1'),
  ]
  const versions = { torch: torch.version, jax: jax.version }
  const layers = [...shapeFigures(), ...(await layerFigures(first))]
  reportRoom('widths', [...layers, ...(await updateFigures({ byThreads, versions }, skipped))], skipped)
} finally {
  for (const peer of byThreads.values()) peer.close()
}
