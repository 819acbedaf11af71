/**
 * Tools of an MCP (Model Context Protocol) server over stdio or HTTP, through the official SDK `@modelcontextprotocol/sdk`: an optional
 * peer that is loaded on first use. A connected client from elsewhere needs only two methods.
 */
/// <reference path="./mcp-sdk.d.ts" />
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { VERSION } from '../../base/version.ts'
import { defineTool, type Tool } from '../tools/tool.ts'

interface McpContent {
  readonly type: string
  readonly text?: string
}

/** The used methods of a connected SDK client. */
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

/** The server: a program to start and use over stdio, an address, or a connected client. */
export type McpServer =
  | { readonly command: string; readonly args?: readonly string[]; readonly env?: Readonly<Record<string, string>> }
  | { readonly url: string; readonly headers?: Readonly<Record<string, string>> }
  | { readonly client: McpClient }

/** Tools of a connected server. */
export interface McpTools {
  readonly tools: readonly Tool[]
  /** Closes the connection, and ends the program if one was started. */
  close(): Promise<void>
}

/**
 * Connects to a tool server. A call fails after `seconds` (default 10). If the server marks an answer as an error, the model gets it as
 * an error. The model gets the texts of an answer, or its structured content if there are none.
 * @throws InputError if the SDK is not installed, the server does not answer, or one of its tools is invalid.
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
    throw new InputError(subject, (cause as Error).message, 'an MCP server that answers', { cause })
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
