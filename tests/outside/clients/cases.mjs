/**
 * What clients in JavaScript ask at their defaults: `node cases.mjs FILE`, where FILE has a list of `{ name, prompt, openaiUrl,
 * anthropicUrl, apiKey }`. Prints a line of JSON for each: what the client told its user, or its error. Stands beside the clients'
 * node_modules when it runs. `node cases.mjs` alone prints the names of the cases, each with what it wants of the model.
 */
import { readFile } from 'node:fs/promises'
import { z } from 'zod'

process.env.OPENAI_AGENTS_DISABLE_TRACING = '1'

const answer = z.object({ answer: z.number() })
const sum = ({ a, b }) => `result ${a + b}`
const ADD = {
  name: 'add',
  description: 'adds two numbers',
  parameters: {
    type: 'object',
    properties: { a: { type: 'number' }, b: { type: 'number' } },
    required: ['a', 'b'],
    additionalProperties: false,
  },
}
const numbers = z.object({ a: z.number(), b: z.number() })

async function joined(stream, textOf) {
  let text = ''
  for await (const piece of stream) text += textOf(piece) ?? ''
  return text
}

/** OpenAI's client. */
async function openai({ openaiUrl: baseURL, apiKey }) {
  const { default: OpenAI } = await import('openai')
  return new OpenAI({ baseURL, apiKey, maxRetries: 0 })
}
const user = (content) => [{ role: 'user', content }]
const MODEL = 'gpt-5'
const runnable = [{ type: 'function', function: { ...ADD, parse: JSON.parse, function: sum } }]

/** Anthropic's client. */
async function claude({ anthropicUrl: baseURL, apiKey }) {
  const { default: Anthropic } = await import('@anthropic-ai/sdk')
  return new Anthropic({ baseURL, apiKey, maxRetries: 0 })
}
const CLAUDE = { model: 'claude-opus-4-6', max_tokens: 300 }
const wordsOf = ({ content }) => content.flatMap(({ text }) => text ?? []).join('')

/** The AI SDK's models, by provider. */
async function sdk(kind, { openaiUrl, anthropicUrl, apiKey }) {
  if (kind === 'anthropic') {
    const { createAnthropic } = await import('@ai-sdk/anthropic')
    return createAnthropic({ baseURL: `${anthropicUrl}/v1`, apiKey })('claude-opus-4-6')
  }
  if (kind === 'compatible') {
    const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible')
    return createOpenAICompatible({ name: 'gateway', baseURL: openaiUrl, apiKey })(MODEL)
  }
  const { createOpenAI } = await import('@ai-sdk/openai')
  const provider = createOpenAI({ baseURL: openaiUrl, apiKey })
  return kind === 'chat' ? provider.chat(MODEL) : provider(MODEL)
}
async function sdkTools() {
  const { tool, stepCountIs } = await import('ai')
  const add = tool({ description: ADD.description, inputSchema: numbers, execute: sum })
  return { tools: { add }, stopWhen: stepCountIs(3) }
}

/** The OpenAI Agents SDK; its default provider keeps the first client that it has. */
async function agents({ openaiUrl: baseURL, apiKey }, useResponses = true) {
  const all = await import('@openai/agents')
  const { default: OpenAI } = await import('openai')
  const openAIClient = new OpenAI({ baseURL, apiKey, maxRetries: 0 })
  const runner = new all.Runner({ modelProvider: new all.OpenAIProvider({ openAIClient, useResponses }) })
  return { ...all, run: runner.run.bind(runner) }
}
const agentTool = ({ tool }) => tool({ name: 'add', description: ADD.description, parameters: numbers, execute: sum })

async function langchain({ openaiUrl: baseURL, apiKey }, more = {}) {
  const { ChatOpenAI } = await import('@langchain/openai')
  return new ChatOpenAI({ model: MODEL, apiKey, configuration: { baseURL }, maxRetries: 0, ...more })
}
async function chainTool() {
  const { tool } = await import('@langchain/core/tools')
  return tool(sum, { name: 'add', description: ADD.description, schema: numbers })
}

async function mastra(place, more = {}) {
  const { Agent } = await import('@mastra/core/agent')
  return new Agent({ id: 'a', name: 'a', instructions: 'Be brief.', model: await sdk('responses', place), ...more })
}

const CASES = {
  'openai chat, plain': async (c) => {
    const { choices } = await (await openai(c)).chat.completions.create({ model: MODEL, messages: user(c.prompt) })
    return choices[0].message.content
  },
  'openai chat, stream': async (c) => {
    const stream = await (await openai(c)).chat.completions.create({
      ...{ model: MODEL, messages: user(c.prompt), stream: true, stream_options: { include_usage: true } },
    })
    return joined(stream, ({ choices }) => choices[0]?.delta.content)
  },
  'openai chat, tools': async (c) => {
    const asked = { model: MODEL, messages: user(c.prompt), tools: runnable }
    return (await openai(c)).chat.completions.runTools(asked).finalContent()
  },
  'openai chat, parallel': async (c) => {
    const asked = { model: MODEL, messages: user(c.prompt), tools: runnable }
    return (await openai(c)).chat.completions.runTools(asked).finalContent()
  },
  'openai chat, alone': async (c) => {
    const asked = { model: MODEL, messages: user(c.prompt), tools: runnable, parallel_tool_calls: false }
    return (await openai(c)).chat.completions.runTools(asked).finalContent()
  },
  'openai chat with reasoning effort, plain': async (c) => {
    const asked = { model: MODEL, messages: user(c.prompt), reasoning_effort: 'low', verbosity: 'low', store: true }
    return (await (await openai(c)).chat.completions.create(asked)).choices[0].message.content
  },
  'openai chat, structured': async (c) => {
    const { zodResponseFormat } = await import('openai/helpers/zod')
    const asked = { model: MODEL, messages: user(c.prompt), response_format: zodResponseFormat(answer, 'answer') }
    return JSON.stringify((await (await openai(c)).chat.completions.parse(asked)).choices[0].message.parsed)
  },
  'openai chat json_object, structured': async (c) => {
    const asked = { model: MODEL, messages: user(c.prompt), response_format: { type: 'json_object' } }
    return (await (await openai(c)).chat.completions.create(asked)).choices[0].message.content
  },
  'openai chat, abort': async (c) => {
    const asked = { model: MODEL, messages: user(c.prompt), stream: true }
    const stream = await (await openai(c)).chat.completions.create(asked, { signal: AbortSignal.timeout(500) })
    const text = await joined(stream, ({ choices }) => choices[0]?.delta.content)
    return text === '' ? 'aborted' : text
  },
  'openai chat, retry': async (c) => {
    const client = (await openai(c)).withOptions({ maxRetries: 2, timeout: 1500 })
    const { choices } = await client.chat.completions.create({ model: MODEL, messages: user(c.prompt) })
    return choices[0].message.content
  },
  'openai Responses, plain': async (c) => {
    return (await (await openai(c)).responses.create({ model: MODEL, input: c.prompt })).output_text
  },
  'openai Responses, stream': async (c) => {
    const stream = await (await openai(c)).responses.create({ model: MODEL, input: c.prompt, stream: true })
    return joined(stream, ({ type, delta }) => (type === 'response.output_text.delta' ? delta : ''))
  },
  'openai Responses, tools': async (c) => {
    const client = await openai(c)
    const asked = { model: MODEL, tools: [{ type: 'function', strict: true, ...ADD }] }
    const first = await client.responses.create({ ...asked, input: c.prompt })
    const input = first.output
      .filter(({ type }) => type === 'function_call')
      .map(({ call_id, arguments: given }) => ({
        ...{ type: 'function_call_output', call_id, output: sum(JSON.parse(given)) },
      }))
    return (await client.responses.create({ ...asked, input, previous_response_id: first.id })).output_text
  },
  'openai Responses, structured': async (c) => {
    const { zodTextFormat } = await import('openai/helpers/zod')
    const asked = { model: MODEL, input: c.prompt, text: { format: zodTextFormat(answer, 'answer'), verbosity: 'low' } }
    return JSON.stringify((await (await openai(c)).responses.parse(asked)).output_parsed)
  },
  'agents, plain': async (c) => {
    const { Agent, run } = await agents(c)
    return (await run(new Agent({ name: 'a', instructions: 'Be brief.' }), c.prompt)).finalOutput
  },
  'agents, stream': async (c) => {
    const { Agent, run } = await agents(c)
    const result = await run(new Agent({ name: 'a', instructions: 'Be brief.' }), c.prompt, { stream: true })
    const text = await joined(result.toTextStream(), (piece) => piece)
    await result.completed
    return text
  },
  'agents, tools': async (c) => {
    const all = await agents(c)
    const agent = new all.Agent({ name: 'a', instructions: 'Be brief.', tools: [agentTool(all)] })
    return (await all.run(agent, c.prompt)).finalOutput
  },
  'agents, parallel': async (c) => {
    const all = await agents(c)
    const agent = new all.Agent({ name: 'a', instructions: 'Be brief.', tools: [agentTool(all)] })
    return (await all.run(agent, c.prompt)).finalOutput
  },
  'agents, structured': async (c) => {
    const { Agent, run } = await agents(c)
    const agent = new Agent({ name: 'a', instructions: 'Be brief.', outputType: answer })
    return JSON.stringify((await run(agent, c.prompt)).finalOutput)
  },
  'agents by chat completions, tools': async (c) => {
    const all = await agents(c, false)
    const agent = new all.Agent({ name: 'a', instructions: 'Be brief.', tools: [agentTool(all)] })
    return (await all.run(agent, c.prompt)).finalOutput
  },
  'agents with sub-agents, subagents': async (c) => {
    const all = await agents(c)
    const helper = (name) => new all.Agent({ name, instructions: `You are ${name}.` })
    const said = await Promise.all(['one', 'two'].map((name) => all.run(helper(name), c.prompt)))
    return said.map(({ finalOutput }) => finalOutput).join(' | ')
  },
  ...Object.fromEntries(
    ['responses', 'chat', 'compatible', 'anthropic'].flatMap((kind) => [
      [
        `AI SDK ${kind}, plain`,
        async (c) => {
          const { generateText } = await import('ai')
          return (await generateText({ model: await sdk(kind, c), prompt: c.prompt, maxRetries: 0 })).text
        },
      ],
      [
        `AI SDK ${kind}, stream`,
        async (c) => {
          const { streamText } = await import('ai')
          const asked = { model: await sdk(kind, c), prompt: c.prompt, maxRetries: 0 }
          let failure = null
          const { textStream } = streamText({ ...asked, onError: ({ error }) => (failure = error) })
          const text = await joined(textStream, (piece) => piece)
          if (failure !== null) throw failure
          return text
        },
      ],
      [
        `AI SDK ${kind}, tools`,
        async (c) => {
          const { generateText } = await import('ai')
          const asked = { model: await sdk(kind, c), prompt: c.prompt, maxRetries: 0 }
          return (await generateText({ ...asked, ...(await sdkTools()) })).text
        },
      ],
      [
        // The compatible provider asks for any object and checks it by itself.
        `AI SDK ${kind}, ${kind === 'compatible' ? 'object' : 'structured'}`,
        async (c) => {
          const { generateObject } = await import('ai')
          const asked = { model: await sdk(kind, c), prompt: c.prompt, maxRetries: 0 }
          return JSON.stringify((await generateObject({ ...asked, schema: answer })).object)
        },
      ],
    ]),
  ),
  'LangChain, plain': async (c) => (await (await langchain(c)).invoke(c.prompt)).text,
  'LangChain, stream': async (c) => joined(await (await langchain(c)).stream(c.prompt), ({ text }) => text),
  'LangChain Responses, plain': async (c) =>
    (await (await langchain(c, { useResponsesApi: true })).invoke(c.prompt)).text,
  'LangChain, structured': async (c) => {
    return JSON.stringify(await (await langchain(c)).withStructuredOutput(answer).invoke(c.prompt))
  },
  'LangChain by tool, structured': async (c) => {
    const asking = (await langchain(c)).withStructuredOutput(answer, { method: 'functionCalling', name: 'reply' })
    return JSON.stringify(await asking.invoke(c.prompt))
  },
  'LangGraph, tools': async (c) => {
    const { createReactAgent } = await import('@langchain/langgraph/prebuilt')
    const agent = createReactAgent({ llm: await langchain(c), tools: [await chainTool()] })
    return (await agent.invoke({ messages: user(c.prompt) })).messages.at(-1).text
  },
  'LangGraph, parallel': async (c) => {
    const { createReactAgent } = await import('@langchain/langgraph/prebuilt')
    const agent = createReactAgent({ llm: await langchain(c), tools: [await chainTool()] })
    return (await agent.invoke({ messages: user(c.prompt) })).messages.at(-1).text
  },
  'Anthropic, plain': async (c) => {
    return wordsOf(await (await claude(c)).messages.create({ ...CLAUDE, messages: user(c.prompt) }))
  },
  'Anthropic, stream': async (c) => {
    return (await claude(c)).messages.stream({ ...CLAUDE, messages: user(c.prompt) }).finalText()
  },
  'Anthropic with thinking and cache marks, plain': async (c) => {
    const content = [{ type: 'text', text: c.prompt, cache_control: { type: 'ephemeral' } }]
    const asked = { ...CLAUDE, thinking: { type: 'adaptive' }, output_config: { effort: 'low' } }
    return wordsOf(await (await claude(c)).messages.create({ ...asked, messages: [{ role: 'user', content }] }))
  },
  'Anthropic tool runner, tools': async (c) => {
    const { betaZodTool } = await import('@anthropic-ai/sdk/helpers/beta/zod')
    const add = betaZodTool({ name: 'add', description: ADD.description, inputSchema: numbers, run: sum })
    const asked = { ...CLAUDE, messages: user(c.prompt), tools: [add] }
    return wordsOf(await (await claude(c)).beta.messages.toolRunner(asked))
  },
  'Anthropic, forced': async (c) => {
    const tool = { name: 'reply', input_schema: z.toJSONSchema(answer) }
    const asked = { ...CLAUDE, messages: user(c.prompt), tools: [tool], tool_choice: { type: 'any' } }
    const { content } = await (await claude(c)).messages.create(asked)
    return JSON.stringify(content.find(({ type }) => type === 'tool_use').input)
  },
  'Anthropic, structured': async (c) => {
    const { zodOutputFormat } = await import('@anthropic-ai/sdk/helpers/zod')
    const asked = { ...CLAUDE, messages: user(c.prompt), output_config: { format: zodOutputFormat(answer) } }
    return JSON.stringify((await (await claude(c)).messages.parse(asked)).parsed_output)
  },
  'Mastra, plain': async (c) => (await (await mastra(c)).generate(c.prompt)).text,
  'Mastra, stream': async (c) => joined((await (await mastra(c)).stream(c.prompt)).textStream, (piece) => piece),
  'Mastra, tools': async (c) => {
    const { createTool } = await import('@mastra/core/tools')
    const execute = async (given) => sum(given.context ?? given)
    const add = createTool({ id: 'add', description: ADD.description, inputSchema: numbers, execute })
    return (await (await mastra(c, { tools: { add } })).generate(c.prompt)).text
  },
  'Mastra, structured': async (c) => {
    return JSON.stringify((await (await mastra(c)).generate(c.prompt, { structuredOutput: { schema: answer } })).object)
  },
}

const [, , file] = process.argv
if (file === undefined) console.log(JSON.stringify(Object.keys(CASES)))
else {
  for (const asked of JSON.parse(await readFile(file, 'utf8'))) {
    let told
    try {
      told = { told: await CASES[asked.name](asked) }
    } catch (error) {
      const { status = error.statusCode ?? error.cause?.statusCode ?? null, message } = error
      told = { error: String(message), status }
    }
    console.log(`CASE ${JSON.stringify({ name: asked.name, ...told })}`)
  }
  process.exit(0)
}
