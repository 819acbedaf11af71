import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { start } from './command.ts'

/** Formats promise that others can read them: so others do, with these versions. */
const PACKAGES = [
  ...['pyarrow==26.0.1', 'duckdb==2.0.0', 'polars==2.1.0'],
  ...['safetensors==0.8.0', 'numpy==2.4.6', 'ml_dtypes==0.6.0'],
  ...['onnx==1.23.2', 'onnxruntime==1.31.1'],
]
const IMPORTS = ['-c', 'import pyarrow, duckdb, polars, safetensors.numpy, ml_dtypes, onnx, onnxruntime']
const INSTALL_MS = 240_000

/** What a hook that looks for Python may take. */
export const PYTHON_MS = INSTALL_MS + 60_000

/**
 * A Python that has the packages: COLONNADE_PYTHON, or one that is made here if there is none yet; or why there is none.
 * One test file uses it: two at once would make it twice.
 */
export async function findPython(): Promise<{ python: string } | { why: string }> {
  const named = process.env.COLONNADE_PYTHON
  if (named) {
    const { code, stderr } = await attempt(named, IMPORTS)
    return code === 0 ? { python: named } : { why: `COLONNADE_PYTHON=${named} has not what it takes: ${stderr.trim()}` }
  }
  const list = createHash('sha256').update(PACKAGES.join()).digest('hex').slice(0, 8)
  const cache = fileURLToPath(new URL(`../../node_modules/.cache/colonnade-python-${list}`, import.meta.url))
  const python = join(cache, 'bin/python')
  if (existsSync(python) && (await attempt(python, IMPORTS)).code === 0) return { python }
  console.warn(`making a Python with ${PACKAGES.join(' ')} in ${cache}: once, some minutes at most`)
  await rm(cache, { recursive: true, force: true })
  const deadline = AbortSignal.timeout(INSTALL_MS)
  for (const [program, words] of [
    ['python3', ['-m', 'venv', cache]],
    [python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--only-binary=:all:', ...PACKAGES]],
    [python, IMPORTS],
  ] as const) {
    const { code, stderr } = await attempt(program, words, deadline)
    if (code === 0) continue
    await rm(cache, { recursive: true, force: true })
    const reason = deadline.aborted ? `took more than ${INSTALL_MS / 1000} s` : stderr.trim().split('\n').at(-1)
    return { why: `${program} ${words.slice(0, 3).join(' ')}: ${reason}` }
  }
  return { python }
}

/** Runs a program to its end; one that cannot be started has no code, and says why in `stderr`. */
export async function attempt(program: string, words: readonly string[], signal?: AbortSignal) {
  return start(program, words, { timeout: INSTALL_MS, ...(signal && { signal }) }).ended.catch((cause: Error) => ({
    code: null,
    stdout: '',
    stderr: cause.message,
  }))
}
