/**
 * Tools of a server that speaks MCP (Model Context Protocol), over stdio or HTTP, by the official SDK
 * `@modelcontextprotocol/sdk`: an optional peer, which is loaded when a server is first asked for. Of a client that is
 * connected already, whoever made it, only two calls are needed.
 */
/// <reference path="./mcp-sdk.d.ts" />
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { VERSION } from '../../base/version.ts'
import { defineTool, type Tool } from '../tools/tool.ts'

/** A part of a tool's answer. */
interface McpContent {
  readonly type: string
  readonly text?: string
}

/** What is needed of a client of the SDK that is connected. */
export interface McpClient {
  listTools(params?: { cursor?: string }): Promise<{
    readonly tools: readonly { name: string; description?: string; inputSchema: Readonly<Record<string, unknown>> }[]
    readonly nextCursor?: string
  }>
  callTool(
    params: { name: string; arguments: Readonly<Record<string, unknown>> },
    schema: undefined,
    options: { signal: AbortSignal; timeout: number },
  ): Promise<{
    readonly content?: readonly McpContent[]
    readonly structuredContent?: unknown
    readonly isError?: boolean
  }>
  close(): Promise<void>
}

/** Where the tools are: a program that is started and spoken to over stdio, a server's address, or a client that is connected. */
export type McpServer =
  | { readonly command: string; readonly args?: readonly string[]; readonly env?: Readonly<Record<string, string>> }
  | { readonly url: string; readonly headers?: Readonly<Record<string, string>> }
  | { readonly client: McpClient }

/** Tools of a server that is connected. */
export interface McpTools {
  readonly tools: readonly Tool[]
  /** Ends the connection, and the program where one was started. */
  close(): Promise<void>
}

/**
 * Connects to a server of tools. A call that takes longer than `seconds` (default 10) has failed; an answer that the server calls
 * an error is one, and the model is told of it. Of an answer the model is told its texts; where it has none, what is structured.
 * @throws InputError where the SDK is not installed, the server cannot be reached, or a tool of it is none.
 * @example
 * const { tools, close } = await mcpTools({ command: 'node', args: ['server.mjs'] })
 */
export async function mcpTools(
  server: McpServer,
  { seconds = 10 }: { readonly seconds?: number } = {},
): Promise<McpTools> {
  checkGiven('server of mcpTools', server, [])
  const client = 'client' in server ? server.client : await connect(server)
  try {
    return { tools: await listTools(client, seconds), close: () => client.close() }
  } catch (error) {
    if (!('client' in server)) await client.close()
    throw error
  }
}

async function listTools(client: McpClient, seconds: number): Promise<Tool[]> {
  const tools: Tool[] = []
  let cursor: string | undefined
  do {
    const page = await client.listTools(cursor === undefined ? {} : { cursor })
    for (const { name, description = '', inputSchema } of page.tools) {
      tools.push(
        defineTool({ name, description, parameters: inputSchema, seconds, run: callOf(client, name, seconds) }),
      )
    }
    cursor = page.nextCursor
  } while (cursor !== undefined)
  return tools
}

function callOf(client: McpClient, name: string, seconds: number): Tool['run'] {
  return async (given, signal) => {
    const said = await client.callTool({ name, arguments: given }, undefined, { signal, timeout: 1000 * seconds })
    const texts = (said.content ?? []).flatMap(({ type, text }) => (type === 'text' ? [text ?? ''] : []))
    const answer = texts.length > 0 ? texts.join('\n') : JSON.stringify(said.structuredContent ?? said.content ?? [])
    if (said.isError === true) throw new Error(answer)
    return answer
  }
}

async function connect(server: Exclude<McpServer, { client: McpClient }>): Promise<McpClient> {
  const subject = 'command' in server ? `MCP server ${server.command}` : `MCP server ${server.url}`
  const { Client, StdioClientTransport, StreamableHTTPClientTransport } = await loadSdk(subject)
  const client = new Client({ name: 'colonnade', version: VERSION })
  try {
    if ('command' in server) {
      const { command, args = [], env } = server
      await client.connect(
        new StdioClientTransport({ command, args: [...args], ...(env === undefined ? {} : { env }) }),
      )
    } else {
      const { url, headers = {} } = server
      await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }))
    }
  } catch (cause) {
    await client.close()
    throw new InputError(subject, (cause as Error).message, 'a server of tools that answers', { cause })
  }
  return client
}

async function loadSdk(subject: string) {
  try {
    const { importPackage } = await import('../../base/files/packages.ts')
    const load = <T>(module: string) => importPackage<T>(`@modelcontextprotocol/sdk/client/${module}.js`)
    const [{ Client }, { StdioClientTransport }, { StreamableHTTPClientTransport }] = await Promise.all([
      load<typeof import('@modelcontextprotocol/sdk/client/index.js')>('index'),
      load<typeof import('@modelcontextprotocol/sdk/client/stdio.js')>('stdio'),
      load<typeof import('@modelcontextprotocol/sdk/client/streamableHttp.js')>('streamableHttp'),
    ])
    return { Client, StdioClientTransport, StreamableHTTPClientTransport }
  } catch (cause) {
    const got = `no @modelcontextprotocol/sdk (${show((cause as Error).message)})`
    throw new InputError(subject, got, 'npm install @modelcontextprotocol/sdk', { cause })
  }
}
