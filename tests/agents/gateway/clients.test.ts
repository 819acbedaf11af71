/** The example agents, each with its own client, train through the gateway. */
import { cp, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { expect, test } from 'vitest'
import { type AgentRun, type Agents, type Gateway, runAgents } from '../../../src/entries/engines.ts'
import { cached, installPackages } from '../../support/cache.ts'
import { skipLoudly } from '../../support/command.ts'
import { opened, scriptedGateway } from '../../support/gateway.ts'
import { isRight, lookupTasks, lookupWorld } from '../../support/lookup.ts'
import { findInstalled, findPython } from '../../support/python.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { isThorough, thorough } from '../../support/tiers.ts'

const agentsFolder = fileURLToPath(new URL('../../../examples/agents', import.meta.url))
/** `npm run learn` trains as long as it takes with every client; the thorough tier does so by the function, the fast one for two updates. */
const isLong = import.meta.env.MODE === 'learn'
const UPDATES = 12

/** Trains with an agent; the mean rewards of the updates, the last of three. */
async function trained(updates: number, agent: ((run: AgentRun) => Promise<unknown>) | readonly string[]) {
  const { gateway, train } = await lookupWorld(updates, (world) => opened({ world }))
  const { agents, trainer } = train(
    typeof agent === 'function'
      ? { run: async (given) => void (await agent(given)) }
      : { command: agent, maxAgents: 6 },
  )
  for await (const _ of trainer.updates({ phase: 'sft' }));
  const rewards: number[] = []
  for await (const { rl } of trainer.updates()) rewards.push(rl!.reward!)
  trainer.close()
  expect(gateway.counts).toMatchObject({ rewritten: 0, retokenized: 0 })
  expect(agents.counts).toMatchObject({ ended: 64 * updates, unknown: 0, late: 0, silent: 0 })
  if (updates < UPDATES) return
  console.info(`rewards: ${rewards.map((reward) => reward.toFixed(2)).join(' ')}`)
  expect(rewards[0]).toBeLessThan(0.75)
  expect(rewards.slice(-3).reduce((sum, each) => sum + each, 0) / 3).toBeGreaterThan(0.9)
}

/** Lets an agent look one digit up, and holds its row to what the engine saw and chose. */
async function followed(open: (gateway: Gateway) => Agents) {
  const { gateway, seen } = await scriptedGateway((prompt) => /=(\d)/.exec(prompt)?.[1] ?? '?')
  const agents = open(gateway)
  const rows = await agents.collect()
  const { reward, error, token, lossMask, logprob } = rows.row(0)
  expect([rows.count, reward, error]).toEqual([1, 1, null])
  expect(seen.length).toBe(2)
  expect(Array.from(token)).toEqual([...seen[1]!.prompt, ...seen[1]!.chosen])
  const chosen = Array.from(token).flatMap((id, t) => (lossMask[t] === 1 ? [[id, logprob[t]]] : []))
  expect(chosen).toEqual(seen.flatMap((turn) => turn.chosen.map((id, i) => [id, turn.logprobs[i]])))
  expect(gateway.counts).toMatchObject({ continued: 1, retokenized: 0, rewritten: 0 })
}

test('an agent that asks by fetch learns to use a tool', { timeout: 120_000 }, async () => {
  await trained(isThorough ? UPDATES : 2, async ({ task, openaiUrl, apiKey }) => {
    const messages = [...(task.prompt as object[])]
    for (let round = 0; round < 2; round++) {
      const response = await fetch(`${openaiUrl}/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
        body: JSON.stringify({ model: 'any', messages, max_tokens: 4 }),
      })
      // biome-ignore lint/suspicious/noExplicitAny: tests read what they expect.
      const { message } = ((await response.json()) as any).choices[0]
      if (message.content !== '?') return
      messages.push(message, { role: 'user', content: `=${task.answer}` })
    }
  })
})

const PACKAGES = ['openai@7.57.0', 'ai@7.0.173', '@ai-sdk/openai-compatible@3.0.92']

thorough('the examples with OpenAI’s client and with the AI SDK train', { timeout: 600_000 }, async (context) => {
  const made = await cached(`agents-${PACKAGES.join()}`.replaceAll(/[/@]/g, '-'), (folder, run) =>
    installPackages(folder, run, PACKAGES),
  )
  if ('why' in made) return skipLoudly(context, `${PACKAGES.join(', ')} cannot be installed from here: ${made.why}`)
  const folder = await temporaryFolder()
  await symlink(join(made.folder, 'node_modules'), join(folder, 'node_modules'))
  const load = async (name: string) => {
    await cp(join(agentsFolder, name), join(folder, name))
    return import(pathToFileURL(join(folder, name)).href)
  }
  const { default: OpenAI } = await import(pathToFileURL(join(made.folder, 'node_modules/openai/index.mjs')).href)
  const [withOpenAI, withSdk] = [await load('openai.mjs'), await load('ai-sdk.mjs')]
  for (const solve of [
    ({ openaiUrl, apiKey, task }: AgentRun) => {
      return withOpenAI.solve(new OpenAI({ baseURL: openaiUrl, apiKey, maxRetries: 0 }), task)
    },
    ({ openaiUrl, apiKey, task }: AgentRun) => withSdk.solve(withSdk.provider(openaiUrl, apiKey), task),
  ]) {
    await followed((gateway) =>
      runAgents({
        gateway,
        tasks: lookupTasks.slice(0, 1),
        run: async (run) => void (await solve(run)),
        reward: isRight,
      }),
    )
    await trained(isLong ? UPDATES : 1, solve)
  }
  for (const name of ['openai.mjs', 'ai-sdk.mjs']) {
    const command = [process.execPath, join(folder, name)]
    await followed((gateway) => runAgents({ gateway, tasks: lookupTasks.slice(0, 1), command, reward: isRight }))
  }
})

thorough('a program in Python that has no package trains', { timeout: 3_600_000 }, async (context) => {
  const found = await findInstalled('urllib.request')
  if ('why' in found) return skipLoudly(context, `Python cannot be had here: ${found.why}`)
  const command = [found.python, fileURLToPath(new URL('../../support/agent_urllib.py', import.meta.url))]
  await followed((gateway) => runAgents({ gateway, tasks: lookupTasks.slice(0, 1), command, reward: isRight }))
  await trained(isLong ? UPDATES : 1, command)
})

thorough('the example in Python trains', { timeout: 3_600_000 }, async (context) => {
  const found = await findPython(['openai==3.54.0'], 'openai')
  if ('why' in found) return skipLoudly(context, `openai of PyPI cannot be had here: ${found.why}`)
  const command = [found.python, join(agentsFolder, 'agent.py')]
  await followed((gateway) => runAgents({ gateway, tasks: lookupTasks.slice(0, 1), command, reward: isRight }))
  if (isLong) await trained(UPDATES, command)
})
