import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { runTorch } from '../../bench/gpu/torch.ts'
import { temporaryFolder } from '../support/temporary.ts'

test.each([
  ['kill -9 $$', 'its process ended with SIGKILL'],
  ['echo Loading >&2; echo no memory >&2; kill -6 $$', 'its process ended with SIGABRT, saying: no memory'],
  ['exit 3', 'its process ended with code 3'],
  ['echo torch finds no GPU >&2; exit 1', 'its process ended with code 1, saying: torch finds no GPU'],
])('torch on the GPU says why it has no rows: %s', async (script, why) => {
  const python = join(await temporaryFolder(), 'python')
  await writeFile(python, `#!/bin/sh\n${script}\n`)
  await chmod(python, 0o755)
  vi.stubEnv('COLONNADE_PYTHON', python)
  onTestFinished(() => void vi.unstubAllEnvs())
  expect(runTorch('small')).toEqual([{ status: 'cannot start', why: `${python}: ${why}` }])
})
