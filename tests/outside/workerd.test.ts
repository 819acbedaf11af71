/**
 * Policies that were exported as a module answer in workerd, the runtime of Cloudflare's workers, as they do in Node. Asked by
 * `npm run test:workerd` alone.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { spaceWidth } from '../../src/base/space.ts'
import { exportPolicy } from '../../src/entries/data.ts'
import { cached, installPackages } from '../support/cache.ts'
import { skipLoudly } from '../support/command.ts'
import { kindNames, NUM_OBSERVATIONS, trained } from '../support/exported.ts'
import { temporaryFolder } from '../support/temporary.ts'

const WORKERD = 'workerd@1.20261117.1'

/** A worker as somebody writes it: each policy at its path, for the observations that are posted. */
const workerOf = (names: readonly string[]) => `
${names.map((_, i) => `import * as policy${i} from './policy${i}.mjs'`).join('\n')}
const policies = { ${names.map((name, i) => `${JSON.stringify(name)}: policy${i}`).join(', ')} }
export default {
  async fetch(request) {
    const { act } = policies[decodeURIComponent(new URL(request.url).pathname.slice(1))]
    const rows = await request.json()
    return Response.json(rows.map(({ observation, mask }) => act(observation, mask)))
  },
}
`

let why = ''
let address = ''
let child: ReturnType<typeof spawn> | undefined
let folder = ''
let said = ''

/** A port that is free now. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

beforeAll(async () => {
  if (import.meta.env.MODE !== 'workerd') {
    why = "an exported policy in Cloudflare's runtime (npm run test:workerd asks it)"
    return
  }
  const made = await cached(WORKERD, (path, run) => installPackages(path, run, [WORKERD]))
  if ('why' in made) {
    why = made.why
    return
  }
  folder = await temporaryFolder()
  for (const [i, name] of kindNames.entries()) {
    await exportPolicy({ ...trained(name), format: 'module', out: join(folder, `policy${i}.mjs`) })
  }
  writeFileSync(join(folder, 'worker.js'), workerOf(kindNames))
  const port = await freePort()
  const files = ['worker.js', ...kindNames.map((_, i) => `policy${i}.mjs`)]
  writeFileSync(
    join(folder, 'config.capnp'),
    `using Workerd = import "/workerd/workerd.capnp";
    const config :Workerd.Config = (
      services = [(name = "policies", worker = .policies)],
      sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "policies")],
    );
    const policies :Workerd.Worker = (
      modules = [${files.map((file) => `(name = "${file}", esModule = embed "${file}")`).join(', ')}],
      compatibilityDate = "2026-01-01",
    );`,
  )
  child = spawn(process.execPath, [join(made.folder, 'node_modules/workerd/bin/workerd'), 'serve', 'config.capnp'], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  child.stderr!.on('data', (text) => {
    said += text
  })
  address = `http://127.0.0.1:${port}`
  while (child.exitCode === null && !(await fetch(address).catch(() => undefined))) {
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  if (child.exitCode !== null) throw new Error(`workerd ended with ${child.exitCode}: ${said}`)
}, 300_000)

afterAll(async () => {
  child?.kill()
})

test.for(kindNames)('%s acts in workerd as in Node', async (name, context) => {
  if (why !== '') skipLoudly(context, why)
  const { observation, mask, environment } = trained(name)
  const width = spaceWidth(environment.observationSpace)
  const maskWidth = mask.length / NUM_OBSERVATIONS
  const rows = Array.from({ length: NUM_OBSERVATIONS }, (_, row) => ({
    observation: [...observation.subarray(row * width, (row + 1) * width)],
    mask: maskWidth === 0 ? undefined : [...mask.subarray(row * maskWidth, (row + 1) * maskWidth)],
  }))
  const path = join(folder, `policy${kindNames.indexOf(name)}.mjs`)
  const { act } = (await import(pathToFileURL(path).href)) as { act(of: number[], mask?: number[]): number | number[] }
  const answer = await fetch(`${address}/${encodeURIComponent(name)}`, { method: 'POST', body: JSON.stringify(rows) })
  const acted = (await answer.json()) as (number | number[])[]
  expect(acted).toEqual(rows.map(({ observation, mask }) => act(observation, mask)))
  if (name !== 'discrete of one') expect(new Set(acted.map(String)).size).toBeGreaterThan(1)
})
