/**
 * An agent with OpenAI's own client, unchanged but for where it asks: it lets the model look up a digit before it answers.
 *
 *     OPENAI_BASE_URL=… OPENAI_API_KEY=… COLONNADE_TASK='{"prompt": …, "answer": "7"}' node openai.mjs
 */
import OpenAI from 'openai'

/** What the tool says. */
const lookUp = (task) => `=${task.answer}`

export async function solve(client, task) {
  const messages = [...task.prompt]
  for (let round = 0; round < 2; round++) {
    const { choices } = await client.chat.completions.create({
      model: 'gpt-5-mini',
      messages,
      max_completion_tokens: 4,
    })
    const { message } = choices[0]
    if (message.content !== '?') return message.content
    messages.push(message, { role: 'user', content: lookUp(task) })
  }
  return null
}

if (process.argv[1]?.endsWith('openai.mjs'))
  console.log(await solve(new OpenAI(), JSON.parse(process.env.COLONNADE_TASK)))
