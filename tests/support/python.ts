import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { cached, type Run } from './cache.ts'
import { start } from './command.ts'

/** Readers of our formats, in these versions. */
const READERS = [
  ...['pyarrow==26.0.1', 'duckdb==2.0.0', 'polars==2.1.0'],
  ...['safetensors==0.8.0', 'numpy==2.4.6', 'ml_dtypes==0.6.0'],
  ...['onnx==1.23.2', 'onnxruntime==1.31.1'],
]
const MODULES = 'pyarrow, duckdb, polars, safetensors.numpy, ml_dtypes, onnx, onnxruntime'
/** Gymnasium and PettingZoo, in these versions. */
export const FARAMA = ['gymnasium==1.4.0', 'numpy==2.4.6', 'pettingzoo==1.27.0', 'mpe2==1.1.1', 'pygame-ce==2.5.8']
export const FARAMA_MODULES = 'gymnasium, numpy, pettingzoo, mpe2, pygame'
const SCRIPT_MS = 240_000

/** The time limit of a hook that looks for Python. */
export const PYTHON_MS = 300_000

/**
 * A Python that can import the modules: COLONNADE_PYTHON, or one made once from the packages; or why there is none.
 * Making it is limited by `makeMs`, by default less than a hook.
 */
export async function findPython(
  packages: readonly string[] = READERS,
  modules = MODULES,
  makeMs?: number,
): Promise<{ python: string } | { why: string }> {
  const imports = ['-c', `import ${modules}`]
  const named = process.env.COLONNADE_PYTHON
  if (named && (await attempt(named, imports)).code === 0) return { python: named }
  const list = createHash('sha256').update(packages.join()).digest('hex').slice(0, 8)
  const make = async (folder: string, run: Run) => {
    const python = join(folder, 'bin/python')
    await run('python3', ['-m', 'venv', '.'])
    const install = ['install', '--quiet', '--disable-pip-version-check', '--only-binary=:all:']
    await run(python, ['-m', 'pip', ...install, ...packages])
    await run(python, imports)
  }
  const made = await cached(`python-${list}`, make, makeMs)
  return 'why' in made ? made : { python: join(made.folder, 'bin/python') }
}

/**
 * COLONNADE_PYTHON, or python3, if it can import these modules, which are too large to install for a test; or why not.
 */
export async function findInstalled(modules: string): Promise<{ python: string } | { why: string }> {
  let why = ''
  for (const python of [process.env.COLONNADE_PYTHON, 'python3']) {
    if (!python) continue
    const { code, stderr } = await attempt(python, ['-c', `import ${modules}`])
    if (code === 0) return { python }
    why = `${python}: ${stderr.trim().split('\n').at(-1)}`
  }
  return { why: `${why}; COLONNADE_PYTHON names a Python that has it` }
}

/** Runs a program to its end. One that cannot start has no code, and `stderr` says why. */
export async function attempt(program: string, words: readonly string[], timeout = SCRIPT_MS) {
  return start(program, words, { timeout }).ended.catch((cause: Error) => ({
    code: null,
    stdout: '',
    stderr: cause.message,
  }))
}
