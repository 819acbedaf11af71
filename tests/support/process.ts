/** What a test file finds in its process, and leaves there for the files after it: several files share one. */
import { afterAll, vi } from 'vitest'
import { closeAll } from './end.ts'
import './equality.ts'

/** The colors of programs under test must not depend on the environment of the test run. */
for (const name of ['CI', 'FORCE_COLOR', 'NODE_DISABLE_COLORS', 'NO_COLOR']) delete process.env[name]

const folder = process.cwd()
const environment = { ...process.env }

afterAll(async () => {
  vi.useRealTimers()
  vi.restoreAllMocks()
  vi.unstubAllGlobals()
  vi.unstubAllEnvs()
  process.chdir(folder)
  for (const name of Object.keys(process.env)) if (!(name in environment)) delete process.env[name]
  Object.assign(process.env, environment)
  await closeAll()
})
