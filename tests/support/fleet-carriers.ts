/** Carriers of the contracts of stores and buses, and a real nats-server where there is one. */
import { execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Bus } from '../../src/fleet/bus/bus.ts'
import { MemoryBus } from '../../src/fleet/bus/memory-bus.ts'
import { connectNats } from '../../src/fleet/bus/nats-bus.ts'
import { FolderStore } from '../../src/fleet/store/folder-store.ts'
import { HttpStore, serveStore } from '../../src/fleet/store/http-store.ts'
import { openS3 } from '../../src/fleet/store/s3-store.ts'
import type { Store } from '../../src/fleet/store/store.ts'
import { temporaryFolder } from './temporary.ts'
import { isThorough } from './tiers.ts'

const run = promisify(execFile)
const root = fileURLToPath(new URL('../..', import.meta.url))
/** The client's packages beside a copy of the package, and the server: both are fetched once. */
export const natsFolder = join(root, 'node_modules/.cache/colonnade-nats')
const SERVER = 'github.com/nats-io/nats-server/v2@v2.10.29'
const CLIENT = ['transport-node', 'jetstream', 'kv'].map((name) => `@nats-io/${name}@3.4.0`)
const server = join(natsFolder, 'nats-server')

/** Why there is no NATS here; null if there is. */
export function whyNoNats(): Promise<string | null> {
  return whyNot('NATS', natsFolder, server, SERVER, CLIENT)
}

const s3Folder = join(root, 'node_modules/.cache/colonnade-s3')
const s3Server = join(s3Folder, 'versitygw')
/** Where the client of S3 is. */
export const s3Places: readonly string[] = [join(s3Folder, 'package.json')]

/** Why there is no S3 here; null if there is. */
export function whyNoS3(): Promise<string | null> {
  const program = 'github.com/versity/versitygw/cmd/versitygw@v1.8.0'
  return whyNot('S3', s3Folder, s3Server, program, ['@aws-sdk/client-s3@3.1175.0'])
}

/** Fetches a server by its Go module, and its client's packages, into a folder. */
export async function whyNot(
  what: string,
  folder: string,
  program: string,
  module: string,
  packages: readonly string[],
) {
  if (!isThorough) return 'the fast tier'
  try {
    await mkdir(folder, { recursive: true })
    if (!existsSync(program)) {
      await run('go', ['install', module], { env: { ...process.env, GOBIN: folder }, timeout: 600_000 })
    }
    if (!existsSync(join(folder, 'complete'))) {
      await writeFile(join(folder, 'package.json'), '{ "private": true, "type": "module" }')
      await run('npm', ['install', '--no-audit', '--no-fund', ...packages], { cwd: folder, timeout: 120_000 })
      await writeFile(join(folder, 'complete'), '')
    }
    return null
  } catch (error) {
    console.warn(`SKIPPED: ${what}, which cannot be fetched (${(error as Error).message})`)
    return (error as Error).message
  }
}

/** The S3 store of a server on a folder. */
const s3: Carrier<Store> = {
  name: 'S3',
  async open() {
    const folder = await temporaryFolder()
    await mkdir(join(folder, 'bucket'))
    const port = await freePort()
    const [access, secret] = ['colonnade', 'a secret of the test']
    const words = ['--access', access, '--secret', secret, '--port', `127.0.0.1:${port}`, 'posix', '--nometa', folder]
    const child = spawn(s3Server, words, { stdio: 'ignore' })
    Object.assign(process.env, {
      AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${port}`,
      AWS_REGION: 'us-east-1',
      AWS_ACCESS_KEY_ID: access,
      AWS_SECRET_ACCESS_KEY: secret,
    })
    return {
      // Its first request is repeated until the server listens.
      join: () => openS3('s3://bucket/some/run', s3Places),
      async close() {
        const gone = new Promise((resolve) => child.once('exit', resolve))
        child.kill()
        await gone
      },
    }
  },
}

export interface NatsServer {
  readonly address: string
  /** Ends it with this signal, and starts it again with its disk. */
  restart(signal: NodeJS.Signals): Promise<void>
  end(): Promise<void>
}

/** Starts a server with JetStream on a folder of its own. `more`: further lines of its configuration. */
export async function startNats(more = ''): Promise<NatsServer> {
  const folder = await temporaryFolder()
  const port = await freePort()
  const config = join(folder, 'nats.conf')
  await writeFile(config, `listen: "127.0.0.1:${port}"\njetstream { store_dir: "${folder}" }\n${more}\n`)
  const start = async () => {
    const child = spawn(server, ['-c', config], { stdio: ['ignore', 'ignore', 'pipe'] })
    let text = ''
    await new Promise<void>((resolve, reject) => {
      child.stderr.on('data', (chunk) => {
        text += chunk
        if (text.includes('Server is ready')) resolve()
      })
      child.once('exit', (code) => reject(new Error(`nats-server ended with ${code}: ${text}`)))
    })
    return child
  }
  let child = await start()
  const stop = async (signal: NodeJS.Signals) => {
    if (child.exitCode !== null) return
    const gone = new Promise((resolve) => child.once('exit', resolve))
    child.kill(signal)
    await gone
  }
  return {
    address: `nats://127.0.0.1:${port}`,
    async restart(signal) {
      await stop(signal)
      child = await start()
    },
    end: () => stop('SIGTERM'),
  }
}

async function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address() as { port: number }
      probe.close(() => resolve(port))
    })
  })
}

/** Joins the run of this name on a server, with the packages of `natsFolder`. */
export function joinNats(address: string, name: string): Promise<Bus> {
  return connectNats(address, name, [join(natsFolder, 'package.json')])
}

/** One end of a carrier: several of the same place see the same blobs or messages. */
export interface Carrier<T> {
  readonly name: string
  /** A place, and how to reach it: each call is a client of its own. */
  open(): Promise<{ readonly join: () => Promise<T>; readonly close: () => Promise<void> }>
}

export const storeCarriers: readonly Carrier<Store>[] = [
  {
    name: 'a folder',
    async open() {
      const folder = await temporaryFolder()
      return { join: async () => new FolderStore(folder), close: async () => {} }
    },
  },
  {
    name: 'HTTP',
    async open() {
      const folder = await temporaryFolder()
      const key = 'a key of more than sixteen letters'
      const served = await serveStore(new FolderStore(folder), { key, listening: { host: '127.0.0.1', port: 0 } })
      return {
        join: async () => new HttpStore(served.url, key),
        async close() {
          served.closeConnections()
          await served.close()
        },
      }
    },
  },
  ...((await whyNoS3()) === null ? [s3] : []),
]

export const memoryBus: Carrier<Bus> = {
  name: 'this process',
  async open() {
    const bus = new MemoryBus()
    return { join: async () => bus, close: async () => {} }
  },
}

export const natsBus: Carrier<Bus> = {
  name: 'NATS',
  async open() {
    const nats = await startNats()
    const clients: Bus[] = []
    return {
      async join() {
        const client = await joinNats(nats.address, 'run')
        clients.push(client)
        return client
      },
      async close() {
        for (const client of clients) await client.close()
        await nats.end()
      },
    }
  },
}
