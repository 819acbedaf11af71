import { randomUUID } from 'node:crypto'
import type { Body, RouteAnswer } from '../../base/http/server.ts'
import { promptIds } from '../../language/tokenizers/turn-ids.ts'
import { type GeneratedToken, whole } from '../serving/batcher.ts'
import {
  besides,
  type Choice,
  choicesOf,
  pieces,
  readPromptLogprobs,
  readTelling,
  seconds,
  spelling,
  tokenized,
  toldPrompt,
  turnsOf,
  usageOf,
} from '../serving/choices.ts'
import { anyClient, type ClientAnswer, type ClientTurns, tellAnswer } from '../serving/client-turns.ts'
import { badField, booleanField, idsField, integerField, textField } from '../serving/fields.ts'
import type { ServedModel } from '../serving/served-model.ts'
import type { ModelHost } from './dialect.ts'
import { checkForm, formOf } from './forms.ts'
import { checkDialect } from './known-fields.ts'

/** Continues texts or ids. `client` receives the answers. */
export async function complete(
  host: ModelHost,
  body: Body,
  signal: AbortSignal,
  client: ClientTurns = anyClient(host.served),
): Promise<RouteAnswer> {
  checkDialect(body, 'completions', host.hints)
  const { served, naming } = host
  const { tokenizer } = served
  const telling = readTelling(body, host, integerField(body, 'logprobs', null, 0, 20))
  const isEchoed = booleanField(body, 'echo', false)
  const numPrompt = readPromptLogprobs(body, telling)
  const maxTokens = integerField(body, 'max_tokens', 16, isEchoed ? 0 : 1)
  // Only the prompt is requested: as in vLLM, one token is generated and left out.
  const isPromptAlone = maxTokens === 0
  const prompts = promptsOf(served, body.prompt)
  const requests = turnsOf(
    prompts,
    body,
    (ids) => client.budgetOf(ids, Math.max(1, maxTokens), 'prompt'),
    telling,
    served,
    client.owner,
  )
  const form = formOf(body, [], host)
  const numPromptTop = numPrompt ?? (isEchoed ? telling.numTop : null)
  const submitted = requests.map((each) => ({
    ...each,
    ...(form === null ? {} : { constraint: form.constraint }),
    ...(numPromptTop === null ? {} : { numPromptTop }),
  }))
  const group = served.batcher.submit(submitted, textField(body, 'request_id', null))
  const choices = choicesOf(group, requests, served)
  const head = { id: `cmpl-${randomUUID()}`, object: 'text_completion', created: seconds(), model: telling.model }
  const spell = spelling(served, telling)
  const logprobs = (tokens: readonly ToldToken[], offset: number) => {
    if (telling.numTop === null) return null
    const offsets = [offset]
    for (const { id } of tokens) offsets.push(offsets.at(-1)! + tokenizer.decode([id]).length)
    return {
      tokens: tokens.map(({ id }) => spell(id)),
      token_logprobs: tokens.map(({ logprob }) => logprob),
      top_logprobs: tokens.map(({ top }) => Object.fromEntries(top.map(([id, logprob]) => [spell(id), logprob]))),
      text_offset: offsets.slice(0, -1),
    }
  }
  const echo = ({ ids }: Choice) => (isEchoed ? tokenizer.decode(Array.from(ids), { skipSpecial: true }) : '')
  const echoed = ({ ids, turn }: Choice): readonly ToldToken[] =>
    isEchoed ? [{ id: ids[0]!, logprob: null, top: [] }, ...(turn.prompt ?? [])] : []
  const generated = (tokens: readonly GeneratedToken[]) => (isPromptAlone ? [] : tokens)
  const usage = () =>
    usageOf(choices.map(({ ids, turn }) => ({ ids, turn: { ...turn, tokens: generated(turn.tokens) } })))
  const asked = (ids: Int32Array) => (telling.tokenIds ? { prompt_token_ids: Array.from(ids) } : {})
  if (!telling.isStream) {
    await whole(group, signal)
    const texts = choices.map((choice) => choice.take()?.text ?? '').map((text) => (isPromptAlone ? '' : text))
    if (!isPromptAlone) {
      for (const [index, choice] of choices.entries()) checkForm(form, texts[index]!, [], choice)
      for (const [index, choice] of choices.entries()) tellAnswer(client, answerOf(choice, texts[index]!), signal)
    }
    return {
      ...head,
      choices: choices.map((choice, index) => ({
        ...{ index, text: echo(choice) + texts[index], finish_reason: isPromptAlone ? 'length' : choice.finishReason },
        logprobs: logprobs([...echoed(choice), ...generated(choice.turn.tokens)], 0),
        ...besides(choice, generated(choice.turn.tokens), telling, naming),
        ...(numPrompt === null ? {} : { prompt_logprobs: toldPrompt(choice, served) }),
        ...asked(choice.ids),
      })),
      usage: usage(),
    }
  }
  async function* events() {
    const offsets = choices.map(() => 0)
    const said = choices.map(() => '')
    for await (const { choice, tokens, text, from } of pieces(group, choices, signal)) {
      const { index } = choice
      said[index] += text
      const before = from === 0 ? echo(choice) : ''
      const told = [...(from === 0 ? echoed(choice) : []), ...generated(tokens)]
      if (choice.isOver) {
        checkForm(form, said[index]!, [], choice)
        if (!isPromptAlone) tellAnswer(client, answerOf(choice, said[index]!), signal)
      }
      yield {
        ...head,
        choices: [
          {
            ...{ index, text: before + (isPromptAlone ? '' : text), finish_reason: choice.finishReason },
            logprobs: logprobs(told, offsets[index]!),
            ...besides(choice, generated(tokens), telling, naming),
            ...(from === 0 ? asked(choice.ids) : {}),
          },
        ],
      }
      offsets[index] = told.reduce((sum, { id }) => sum + tokenizer.decode([id]).length, offsets[index]!)
    }
    if (telling.includesUsage) yield { ...head, choices: [], usage: usage() }
  }
  return { events: events() }
}

/** A token of an answer or of an echoed prompt, whose first one has no log-probability. */
interface ToldToken extends Pick<GeneratedToken, 'id' | 'top'> {
  readonly logprob: number | null
}

function answerOf({ ids, turn }: Choice, content: string): ClientAnswer {
  return { prompt: { ids, messages: null, input: {} }, turn, message: { role: 'assistant', content } }
}

/** The prompts of a completion: one or several texts or id lists. */
function promptsOf({ tokenizer, vocabularySize }: ServedModel, prompt: unknown): Int32Array[] {
  const one = (each: unknown): Int32Array => {
    if (typeof each !== 'string') return idsField('prompt', each, vocabularySize)
    const ids = Int32Array.from(tokenized('prompt', () => promptIds(tokenizer, each)))
    if (ids.length === 0) throw badField('prompt', each, 'at least one token')
    return ids
  }
  const isList = Array.isArray(prompt) && prompt.length > 0 && typeof prompt[0] !== 'number'
  return isList ? prompt.map(one) : [one(prompt)]
}
