/** The WebAssembly that is kept in the repository, built anew by the compiler of its version, which comes from PyPI. */
import { expect, test } from 'vitest'
import { skipLoudly } from '../support/command.ts'
import { attempt, findPython, PYTHON_MS } from '../support/python.ts'

const root = new URL('../../', import.meta.url)
const { COMPILER } = (await import(new URL('scripts/wasm.mjs', root).href)) as { COMPILER: string }

test('the kernels in C give the bytes that are kept', { timeout: 2 * PYTHON_MS }, async (context) => {
  const found = await findPython([`ziglang==${COMPILER}`], 'ziglang', PYTHON_MS)
  if ('why' in found) return skipLoudly(context, `building the WebAssembly anew: ${found.why}`)
  process.env.ZIG = `${found.python} -m ziglang`
  const script = new URL('scripts/build-wasm.mjs', root).pathname
  const { code, stderr } = await attempt(process.execPath, [script, '--check'])
  expect(code, stderr).toBe(0)
})
