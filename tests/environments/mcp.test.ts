/** Tools of MCP servers: of a client that is connected already, and by the SDK, which is fetched at the first visit. */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { type McpClient, mcpTools } from '../../src/environments/bridges/mcp.ts'
import { callTool } from '../../src/environments/tools/tool.ts'
import { thorough } from '../support/tiers.ts'

const never = new AbortController().signal
const VERSION = '1.32.2'
const root = fileURLToPath(new URL('../..', import.meta.url))
const folder = join(root, 'node_modules/.cache', `colonnade-mcp-${VERSION}`)
const run = promisify(execFile)

/** The package as it is built beside the SDK, in a folder of its own; false where the SDK cannot be fetched. */
async function install(): Promise<boolean> {
  if (!existsSync(join(folder, 'complete'))) {
    await mkdir(folder, { recursive: true })
    await writeFile(join(folder, 'package.json'), '{ "private": true, "type": "module" }')
    const packages = ['install', '--no-audit', '--no-fund', `@modelcontextprotocol/sdk@${VERSION}`]
    try {
      await run('npm', packages, { cwd: folder, timeout: 90_000 })
    } catch (error) {
      console.warn(`SKIPPED: MCP servers by the SDK, which cannot be fetched (${(error as Error).message})`)
      return false
    }
    await writeFile(join(folder, 'complete'), '')
  }
  const own = join(folder, 'node_modules/colonnade')
  await rm(own, { recursive: true, force: true })
  await cp(join(root, 'dist/src'), join(own, 'dist/src'), { recursive: true })
  await cp(join(root, 'package.json'), join(own, 'package.json'))
  for (const name of ['mcp-client.mjs', 'mcp-server.mjs'])
    await cp(join(root, 'tests/support', name), join(folder, name))
  return true
}

describe('Tools of an MCP server', () => {
  thorough('are called over stdio and over HTTP by the SDK', async ({ skip }) => {
    if (!(await install())) return skip('the SDK cannot be fetched')
    const { stdout } = await run(process.execPath, [join(folder, 'mcp-client.mjs')], { cwd: folder, timeout: 60_000 })
    const { stdio, http, refused } = JSON.parse(stdout)
    expect(stdio).toEqual([
      [
        ['add', 'The sum of two numbers.'],
        ['fail', ''],
        ['hang', ''],
        ['list', ''],
      ],
      { content: '42', isError: false },
      { content: 'error: add: b is missing', isError: true },
      { content: 'error: fail: out of order', isError: true },
      { content: 'error: hang: no answer within 0.5 s', isError: true },
      { content: '{"items":[1,2]}', isError: false },
    ])
    expect(http).toEqual(stdio)
    for (const [name, message] of refused) {
      expect(name).toBe('InputError')
      expect(message).toMatch(/^MCP server .*expected an MCP server that answers$/s)
    }
  })

  /** A client whose server has so many tools, one a page. */
  function client(numTools: number, inputSchema: object = { type: 'object' }): McpClient & { isClosed: boolean } {
    return {
      isClosed: false,
      async listTools({ cursor = '0' } = {}) {
        const at = Number(cursor)
        const next = at + 1 < numTools ? { nextCursor: String(at + 1) } : {}
        return { tools: [{ name: `tool${at}`, inputSchema: inputSchema as never }], ...next }
      },
      callTool: async ({ name }) => ({ content: [{ type: 'image' }, { type: 'text', text: `${name}!` }] }),
      async close() {
        this.isClosed = true
      },
    }
  }

  test('are those of a client that is connected, page by page', async () => {
    const connected = client(3)
    const { tools, close } = await mcpTools({ client: connected })
    expect(tools.map(({ name }) => name)).toEqual(['tool0', 'tool1', 'tool2'])
    expect(await callTool(tools, { name: 'tool1', arguments: {} }, never)).toEqual({
      content: 'tool1!',
      isError: false,
    })
    await close()
    expect(connected.isClosed).toBe(true)
  })

  test('are refused where they are none', async () => {
    await expect(mcpTools({ client: client(1, { type: 'array' }) })).rejects.toThrow(
      'tool tool0, parameters: got {"type":"array"}, expected a JSON schema of type object',
    )
  })

  test('need the SDK, and say so', async () => {
    await expect(mcpTools({ command: 'node' })).rejects.toThrow('expected npm install @modelcontextprotocol/sdk')
  })
})
