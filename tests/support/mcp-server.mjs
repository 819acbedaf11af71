/** A small MCP server by the SDK: tools that answer, fail, hang and give structure. Over stdio, or over HTTP, whose port it prints. */
import { createServer } from 'node:http'
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js'

const numbers = { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] }
const tools = [
  { name: 'add', description: 'The sum of two numbers.', inputSchema: numbers },
  { name: 'fail', inputSchema: { type: 'object' } },
  { name: 'hang', inputSchema: { type: 'object' } },
  { name: 'list', inputSchema: { type: 'object' } },
]

function createToolServer() {
  const server = new Server({ name: 'small', version: '1' }, { capabilities: { tools: {} } })
  // Two pages, as a server with many tools has them.
  server.setRequestHandler(ListToolsRequestSchema, async ({ params }) =>
    params?.cursor === 'rest' ? { tools: tools.slice(1) } : { tools: tools.slice(0, 1), nextCursor: 'rest' },
  )
  server.setRequestHandler(CallToolRequestSchema, async ({ params: { name, arguments: given } }) => {
    if (name === 'add') return { content: [{ type: 'text', text: String(given.a + given.b) }] }
    if (name === 'fail') return { isError: true, content: [{ type: 'text', text: 'out of order' }] }
    if (name === 'list') return { content: [], structuredContent: { items: [1, 2] } }
    return new Promise(() => {})
  })
  return server
}

if (process.argv[2] === 'http') {
  const http = createServer(async (request, response) => {
    if (request.headers.authorization !== 'Bearer secret') return response.writeHead(401).end()
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined })
    await createToolServer().connect(transport)
    await transport.handleRequest(request, response)
  })
  http.listen(0, '127.0.0.1', () => console.log(http.address().port))
} else await createToolServer().connect(new StdioServerTransport())
