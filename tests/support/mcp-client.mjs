/** Asks an MCP server over stdio and over HTTP by the package as it is installed beside the SDK; prints what came of it as JSON. */
import { spawn } from 'node:child_process'
import { callTool, mcpTools } from 'colonnade/text'

const server = new URL('./mcp-server.mjs', import.meta.url).pathname
const never = new AbortController().signal

async function ask(where) {
  const { tools, close } = await mcpTools(where, { seconds: 0.5 })
  const call = (name, given) => callTool(tools, { name, arguments: given }, never)
  const told = [
    tools.map(({ name, description }) => [name, description]),
    await call('add', { a: 2, b: 40 }),
    await call('add', { a: 2 }),
    await call('fail', {}),
    await call('hang', {}),
    await call('list', {}),
  ]
  await close()
  return told
}

const failureOf = async (where) => {
  try {
    await mcpTools(where)
  } catch ({ name, message }) {
    return [name, message]
  }
}

const http = spawn(process.execPath, [server, 'http'])
const port = Number(await new Promise((resolve) => http.stdout.once('data', resolve)))
const url = `http://127.0.0.1:${port}/mcp`
try {
  const stdio = await ask({ command: process.execPath, args: [server] })
  const overHttp = await ask({ url, headers: { authorization: 'Bearer secret' } })
  const refused = [await failureOf({ url }), await failureOf({ command: process.execPath, args: ['-e', ''] })]
  console.log(JSON.stringify({ stdio, http: overHttp, refused }))
} finally {
  http.kill()
}
