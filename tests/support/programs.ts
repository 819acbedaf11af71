/** Servers that other programs run. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { start } from './command.ts'

/** A port that nobody listens at. */
export async function freePort(): Promise<number> {
  const http = createServer()
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const { port } = http.address() as AddressInfo
  await new Promise((resolve) => http.close(resolve))
  return port
}

/** Starts a server, and waits until it says that it is ready. @throws Error with what it said, where it ends before. */
export async function startServer(program: string, words: readonly string[], env: NodeJS.ProcessEnv, ready: string) {
  const server = start(program, words, { timeout: 0, env: { ...process.env, ...env } })
  await server.printed(ready)
  if (server.process.exitCode === null && server.process.signalCode === null) return server
  const { code, stdout, stderr } = await server.ended
  throw new Error(`${program} ${words.join(' ')}: ended with code ${code}: ${`${stdout}\n${stderr}`.slice(-4000)}`)
}
