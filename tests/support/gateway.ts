/** A gateway over a scripted engine that records its turns. */
import { join } from 'node:path'
import { type Gateway, type GatewayOptions, openGateway } from '../../src/agents/gateway/gateway.ts'
import { scriptedEngine } from '../../src/engines/scripted.ts'
import type { Constraint, LogitChanges } from '../../src/environments/text.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { loadTokenizer } from '../../src/language/tokenizers/load-tokenizer.ts'
import { atEnd } from './end.ts'
import { writeQwen3 } from './qwen3-folder.ts'
import { temporaryFolder } from './temporary.ts'

/** Renders tools, and writes calls in Qwen's format. */
export const TOOL_TEMPLATE = `{%- if tools %}{{ 'tools: ' + tools | tojson + '\\n' }}{%- endif %}{%- for message in messages %}{{ message.role + ': ' + (message.content or '') }}{%- for call in message.tool_calls or [] %}{{ '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}\\n</tool_call>' }}{%- endfor %}{{ '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{ 'assistant: ' }}{%- endif %}`

/** A turn as the engine received it. */
export interface SeenTurn {
  readonly prompt: readonly number[]
  readonly chosen: number[]
  readonly logprobs: number[]
  /** The required format; absent: none. */
  readonly constraint?: Constraint
  readonly changes?: LogitChanges
}

/** Opens a gateway until the end of the test file. */
export async function opened(options: GatewayOptions): Promise<Gateway> {
  const gateway = await openGateway(options)
  atEnd(() => gateway.close({ now: true }))
  return gateway
}

/** A gateway whose model answers each prompt with `say`, where `null` means never. */
export async function scriptedGateway(
  say: (prompt: string, turn: number) => string | null,
  options: Partial<GatewayOptions> = {},
  template = TOOL_TEMPLATE,
  context = 400,
  constrains = false,
  changes: readonly (keyof LogitChanges)[] = [],
) {
  const folder = await temporaryFolder()
  await writeQwen3(join(folder, 'tiny'), { context, template })
  const tokenizer = await loadTokenizer(join(folder, 'tiny'))
  const seen: SeenTurn[] = []
  const scripts = new Map<object, { readonly ids: readonly number[] | null; readonly turn: SeenTurn }>()
  const engine = scriptedEngine(
    (request, ids, step) => {
      if (!scripts.has(request)) {
        const said = say(tokenizer.decode(ids), seen.length)
        const { constraint, changes } = request
        const form = { ...(constraint && { constraint }), ...(changes && { changes }) }
        const turn = { prompt: [...ids], chosen: [], logprobs: [], ...form }
        seen.push(turn)
        scripts.set(request, { turn, ids: said === null ? null : [...tokenizer.encode(said), tokenizer.endIds[0]!] })
      }
      const { ids: script, turn } = scripts.get(request)!
      if (script === null) return 'wait'
      const [token, logprob] = [script[step]!, -(1 + seen.indexOf(turn)) / (2 + step)]
      turn.chosen.push(token)
      turn.logprobs.push(Math.fround(logprob))
      return { token, logprob }
    },
    { constrains, changes },
  )
  const policy = languageModel({ folder: join(folder, 'tiny') })
  const gateway = await opened({ policy, engine, name: 'tiny', ...options })
  return { gateway, seen, tokenizer }
}

/** Sends a request as the operator. */
export async function operate(gateway: Gateway, path: string, body: object) {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${gateway.operatorKey}` }
  const response = await fetch(gateway.url + path, { method: 'POST', headers, body: JSON.stringify(body) })
  // biome-ignore lint/suspicious/noExplicitAny: tests read what they expect.
  return { status: response.status, json: (await response.json()) as any }
}

/** Creates a session over HTTP. */
export async function made(gateway: Gateway, place: object = {}) {
  const { json } = await operate(gateway, '/sessions', place)
  const ask = async (path: string, body: object, key: string = json.key) => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` }
    const response = await fetch(gateway.url + path, { method: 'POST', headers, body: JSON.stringify(body) })
    const text = await response.text()
    // biome-ignore lint/suspicious/noExplicitAny: as above.
    const told = response.headers.get('content-type') === 'application/json' ? (JSON.parse(text) as any) : null
    return { status: response.status, json: told, text }
  }
  const end = (reward: object) => operate(gateway, `/sessions/${json.id}/reward`, reward)
  return { ...(json as { id: string; key: string; openai_base_url: string }), ask, end }
}

/** The names and data of a stream's events. */
export function eventsOf(text: string) {
  return text
    .split('\n\n')
    .filter((block) => block !== '')
    .map((block) => {
      const name = /^event: (.*)$/m.exec(block)?.[1] ?? null
      // biome-ignore lint/suspicious/noExplicitAny: as above.
      return { name, data: JSON.parse(/^data: (.*)$/m.exec(block)![1]!) as any }
    })
}
