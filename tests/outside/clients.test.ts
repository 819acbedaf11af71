/**
 * A matrix of clients that nobody has changed, each at its defaults, through a gateway: what the engine sampled, what the client told
 * its user and what was recorded have to be the same. Asked by `npm run test:clients` alone, with packages of npm and of PyPI that it
 * installs at the versions below; `NEWEST=1` takes the newest ones. It prints a table, and what it could not install.
 */
import { cp, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { languageModel } from '../../src/language/language-model.ts'
import { loadTokenizer } from '../../src/language/tokenizers/load-tokenizer.ts'
import { cached, installPackages } from '../support/cache.ts'
import { skipLoudly, start } from '../support/command.ts'
import { opened, type SeenTurn, scriptedGateway, TOOL_TEMPLATE } from '../support/gateway.ts'
import { findPython } from '../support/python.ts'
import { writeQwen3 } from '../support/qwen3-folder.ts'
import { recordingEngine } from '../support/recording-engine.ts'
import { temporaryFolder } from '../support/temporary.ts'

const isNewest = process.env.NEWEST === '1'
const NPM = [
  ...['openai@7.57.0', '@openai/agents@0.20.0', 'ai@7.0.173', '@ai-sdk/openai@4.0.118', '@ai-sdk/anthropic@4.0.105'],
  ...['@ai-sdk/openai-compatible@3.0.92', '@langchain/openai@1.6.0', '@langchain/core@1.4.0'],
  ...['@langchain/langgraph@1.7.3', '@anthropic-ai/sdk@1.14.0', '@mastra/core@1.71.0', 'zod@4.6.7'],
].map((name) => (isNewest ? name.replace(/(?<=.)@.*/, '@latest') : name))
const PYPI = [
  ...['openai==3.3.0', 'anthropic==2.14.0', 'openai-agents==0.24.0', 'pydantic-ai-slim[openai]==2.38.0'],
  ...['smolagents[openai]==1.26.0', 'litellm==1.110.2', 'langchain-openai==1.7.4', 'langgraph==1.2.24'],
  ...['instructor==1.17.0', 'dspy==3.4.1'],
].map((name) => (isNewest ? name.replace(/==.*/, '') : name))
const INSTALL_MS = 1_800_000
const CASES_MS = 600_000
const WANTED = /, (\w+)$|_([a-z]+)$/

const outside = fileURLToPath(new URL('./clients/', import.meta.url))

/** What the model says in a case of this kind, by its prompt; null for never, undefined where the kind says nothing more. */
function answerOf(kind: string, number: string, prompt: string, turn: number): string | null {
  const call = (name: string, given: object) =>
    `<tool_call>\n{"name": "${name}", "arguments": ${JSON.stringify(given)}}\n</tool_call>`
  const done = `Case ${number} is done.`
  const isAnswered = prompt.includes('result 3')
  switch (kind) {
    case 'abort':
      return null
    case 'retry':
      return turn === 0 ? null : done
    case 'object':
      return '{"answer":3}'
    case 'tools':
      return isAnswered ? done : call('add', { a: 1, b: 2 })
    case 'forcedtools':
      return isAnswered ? call('final_answer', { answer: done }) : call('add', { a: 1, b: 2 })
    case 'parallel':
    case 'alone':
      return isAnswered ? done : `${call('add', { a: 1, b: 2 })}\n${call('add', { a: 3, b: 4 })}`
    case 'code':
      return `Thought: easy.\n<code>\nfinal_answer("${done}")\n</code>`
    case 'dspy':
      return `[[ ## answer ## ]]\n${done}\n\n[[ ## completed ## ]]`
    default:
      return done
  }
}

/** What the client tells its user in the end. */
function expectedOf(kind: string, number: string): string {
  const done = `Case ${number} is done.`
  if (kind === 'object') return '{"answer":3}'
  if (kind === 'abort') return 'aborted'
  return kind === 'subagents' ? `${done} | ${done}` : done
}

interface Outcome {
  readonly name: string
  readonly outcome: 'intended' | 'refused' | 'other'
  readonly mismatches: readonly string[]
  readonly why: string
}

/** A gateway whose model says what the kind of each case wants. */
async function scripted() {
  const turnsOf = new Map<string, SeenTurn[]>()
  const { gateway, seen, tokenizer } = await scriptedGateway(
    (prompt) => {
      const [, number, kind] = /\[case (\d+) (\w+)\]/.exec(prompt) ?? [prompt, 'none', 'none']
      if (number === 'none') console.error(`a prompt without its case: ${prompt}`)
      const turns = turnsOf.get(number!) ?? []
      turnsOf.set(number!, turns)
      Promise.resolve().then(() => turns.push(seen.findLast((turn) => tokenizer.decode(turn.prompt) === prompt)!))
      return answerOf(kind!, number!, prompt, turns.length)
    },
    { maxTokens: 2 ** 20 },
    undefined,
    2 ** 16,
    true,
  )
  return { gateway, tokenizer, sampledIn: (number: string) => turnsOf.get(number) ?? [] }
}

/** A gateway over the engine of this process, whose model has random weights: a form alone says what it may answer. */
async function local() {
  const folder = join(await temporaryFolder(), 'tiny')
  await writeQwen3(folder, { context: 2 ** 13, template: TOOL_TEMPLATE })
  const tokenizer = await loadTokenizer(folder)
  const seen: SeenTurn[] = []
  const engine = recordingEngine(seen)
  const gateway = await opened({ policy: languageModel({ folder }), engine, name: 'tiny', slots: 2 })
  const isOf = ({ prompt }: SeenTurn, number: string) => tokenizer.decode(prompt).includes(`[case ${number} `)
  return { gateway, tokenizer, sampledIn: (number: string) => seen.filter((turn) => isOf(turn, number)) }
}

/** Kinds whose answers have a form, and are the model's own. */
const OF_A_FORM = ['structured', 'forced']

/** The JSON of an answer of a form, or of a call's arguments, as it is written everywhere; null if there is none. */
function objectIn(text: string): string | null {
  try {
    const said = JSON.parse(text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1))
    return JSON.stringify(text.includes('<tool_call>') ? said.arguments : said)
  } catch {
    return null
  }
}

/** Runs a program's cases, and holds what it tells and what is recorded to what was sampled. */
async function outcomesOf(program: string, script: string, cwd: string, env: object): Promise<Outcome[]> {
  const options = { cwd, env: { ...process.env, ...env }, timeout: CASES_MS }
  const listed = await start(program, [script], options).ended
  if (listed.code !== 0) throw new Error(listed.stderr)
  const names = JSON.parse(listed.stdout) as string[]
  const kinds = names.map(
    (name) =>
      WANTED.exec(name)!
        .slice(1)
        .find((kind) => kind !== undefined)!,
  )
  const [saying, free] = [await scripted(), await local()]
  const hosts = kinds.map((kind) => (OF_A_FORM.includes(kind) ? free : saying))
  const sessions = hosts.map(({ gateway }) => gateway.openSession())
  const asked = names.map((name, i) => ({
    ...{ name, prompt: `[case ${i} ${kinds[i]}] What is 1 + 2?`, apiKey: sessions[i]!.key },
    ...{ openaiUrl: sessions[i]!.openaiUrl, anthropicUrl: sessions[i]!.anthropicUrl },
  }))
  const file = join(await temporaryFolder(), 'cases.json')
  await writeFile(file, JSON.stringify(asked))
  const { stdout, stderr } = await start(program, [script, file], options).ended
  const told = [...stdout.matchAll(/^CASE (.*)$/gm)].map(([, line]) => JSON.parse(line!))
  if (told.length < names.length) console.error(`${script} ended after ${told.length} cases: ${stderr.slice(-2000)}`)
  return names.map((name, i) => {
    const { rows } = sessions[i]!.end({ reward: 0 })
    const answer = told.find((each) => each.name === name) ?? { error: 'nothing was told', status: null }
    const { sampledIn, tokenizer } = hosts[i]!
    const sampled = sampledIn(String(i)).filter(({ chosen }) => chosen.length > 0)
    const recorded = rows.flatMap((row) => {
      const [token, logprob, lossMask, turn] = [row.token, row.logprob, row.lossMask, row.turn].map((column) =>
        Array.from(column),
      ) as [number[], number[], number[], number[]]
      const numbers = [...new Set(turn.filter((_, t) => lossMask[t] === 1))]
      return numbers.map((number) => {
        const places = token.flatMap((_, t) => (turn[t] === number && lossMask[t] === 1 ? [t] : []))
        return JSON.stringify([token.slice(0, places[0]), places.map((t) => [token[t], logprob[t]])])
      })
    })
    const expected = sampled.map(({ prompt, chosen, logprobs }) =>
      JSON.stringify([prompt, chosen.map((id, k) => [id, logprobs[k]])]),
    )
    const mismatches: string[] = []
    const isCut = kinds[i] === 'abort'
    if (recorded.toSorted().join() !== (isCut ? [] : expected.toSorted()).join())
      mismatches.push('sampled and recorded')
    const isIntended = OF_A_FORM.includes(kinds[i]!)
      ? answer.told !== undefined && objectIn(answer.told) === objectIn(tokenizer.decode(sampled.at(-1)?.chosen ?? []))
      : answer.told === expectedOf(kinds[i]!, String(i))
    if (answer.told !== undefined && !isIntended) mismatches.push(`told ${JSON.stringify(answer.told)}`)
    const isRefused =
      answer.error !== undefined &&
      /\b400\b|\b404\b|cannot do that|does not force/.test(`${answer.status} ${answer.error}`)
    const outcome = isIntended ? 'intended' : isRefused ? 'refused' : 'other'
    return {
      name,
      outcome,
      mismatches,
      why: isIntended
        ? ''
        : String(answer.error ?? '')
            .slice(0, 160)
            .replaceAll('\n', ' '),
    }
  })
}

/** Prints a table of the cases, and expects what has to be. */
function hold(title: string, outcomes: readonly Outcome[]): void {
  const count = (outcome: string) => outcomes.filter((each) => each.outcome === outcome).length
  const lines = outcomes.map(({ name, outcome, mismatches, why }) => {
    return `${outcome.padEnd(9)} ${name}${mismatches.length > 0 ? `; MISMATCH: ${mismatches.join(', ')}` : ''}${why === '' ? '' : `: ${why}`}`
  })
  const numMismatches = outcomes.reduce((sum, { mismatches }) => sum + mismatches.length, 0)
  const sum = `${count('intended')} as intended, ${count('refused')} refused, ${count('other')} otherwise, ${numMismatches} mismatches`
  console.info(`${title}: ${outcomes.length} cases, ${sum}\n${lines.join('\n')}`)
  expect(outcomes.filter(({ mismatches }) => mismatches.length > 0)).toEqual([])
  expect(outcomes.filter(({ outcome }) => outcome === 'other')).toEqual([])
  expect(outcomes.filter(({ outcome }) => outcome === 'refused')).toEqual([])
}

test('clients in JavaScript', { timeout: INSTALL_MS + CASES_MS }, async (context) => {
  if (import.meta.env.MODE !== 'clients') return skipLoudly(context, 'clients in JavaScript (npm run test:clients)')
  const name = `clients-${NPM.join('-').replaceAll(/[/@]/g, '-')}`.slice(0, 100)
  const made = await cached(name, (folder, run) => installPackages(folder, run, NPM), INSTALL_MS)
  if ('why' in made) return skipLoudly(context, `${NPM.join(', ')} cannot be installed from here: ${made.why}`)
  const folder = await temporaryFolder()
  await symlink(join(made.folder, 'node_modules'), join(folder, 'node_modules'))
  await cp(join(outside, 'cases.mjs'), join(folder, 'cases.mjs'))
  hold('JavaScript', await outcomesOf(process.execPath, 'cases.mjs', folder, {}))
})

test('clients in Python', { timeout: INSTALL_MS + CASES_MS }, async (context) => {
  if (import.meta.env.MODE !== 'clients') return skipLoudly(context, 'clients in Python (npm run test:clients)')
  const modules =
    'openai, anthropic, agents, pydantic_ai, smolagents, litellm, langchain_openai, langgraph, instructor, dspy'
  const found = await findPython(PYPI, modules, INSTALL_MS)
  if ('why' in found) return skipLoudly(context, `${PYPI.join(', ')} of PyPI cannot be had here: ${found.why}`)
  const folder = await temporaryFolder()
  hold('Python', await outcomesOf(found.python, join(outside, 'cases.py'), folder, { DSPY_CACHEDIR: folder }))
})
