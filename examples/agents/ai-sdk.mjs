/**
 * An agent with the AI SDK, unchanged but for where it asks: it lets the model look up a digit before it answers.
 *
 *     OPENAI_BASE_URL=… OPENAI_API_KEY=… COLONNADE_TASK='{"prompt": …, "answer": "7"}' node ai-sdk.mjs
 */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, streamText } from 'ai'

/** What the tool says. */
const lookUp = (task) => `=${task.answer}`

export function provider(baseURL, apiKey) {
  return createOpenAICompatible({ name: 'gateway', baseURL, apiKey })
}

export async function solve(models, task) {
  const messages = [...task.prompt]
  const asked = { model: models('gpt-5-mini'), messages, maxOutputTokens: 4 }
  const { text } = await generateText(asked)
  if (text !== '?') return text
  messages.push({ role: 'assistant', content: text }, { role: 'user', content: lookUp(task) })
  let answer = ''
  for await (const piece of streamText({ ...asked, messages }).textStream) answer += piece
  return answer
}

if (process.argv[1]?.endsWith('ai-sdk.mjs')) {
  const { OPENAI_BASE_URL: url, OPENAI_API_KEY: key, COLONNADE_TASK: task } = process.env
  console.log(await solve(provider(url, key), JSON.parse(task)))
}
