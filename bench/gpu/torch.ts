/** The same work by torch on the same GPU. */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { whyEnded } from '../ended.ts'

const inDist = import.meta.url.includes('/dist/bench/')
const twin = fileURLToPath(new URL(`${inDist ? '../../../' : '../../'}bench/gpu/torch_twin.py`, import.meta.url))
/** No run of the twin takes longer than this. */
const TIMEOUT_SECONDS = 240

/** Rows of the twin with torch's version, or one row that says why there are none. */
export function runTorch(size: 'full' | 'small'): object[] {
  const python = process.env.COLONNADE_PYTHON || 'python3'
  const ended = spawnSync(python, [twin, size], { encoding: 'utf8', timeout: TIMEOUT_SECONDS * 1000 })
  if (ended.status !== 0) return [{ status: 'cannot start', why: `${python}: ${whyEnded(ended)}` }]
  const { version, device, rows } = JSON.parse(ended.stdout) as { version: string; device: string; rows: object[] }
  return rows.map((row) => ({ version, device, ...row }))
}
