/** The used parts of `@modelcontextprotocol/sdk`, an optional peer that is not installed here. */
declare module '@modelcontextprotocol/sdk/client/index.js' {
  import type { McpClient } from './mcp.ts'
  export const Client: new (about: {
    name: string
    version: string
  }) => McpClient & {
    connect(transport: object): Promise<void>
  }
}
declare module '@modelcontextprotocol/sdk/client/stdio.js' {
  export const StdioClientTransport: new (program: {
    command: string
    args: string[]
    env?: Readonly<Record<string, string>>
  }) => object
}
declare module '@modelcontextprotocol/sdk/client/streamableHttp.js' {
  export const StreamableHTTPClientTransport: new (
    url: URL,
    options: { requestInit: { headers: Readonly<Record<string, string>> } },
  ) => object
}
