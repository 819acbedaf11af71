/**
 * Turns conversations into ids. A chat template gives text; this file decides at turn boundaries how to tokenize it.
 * Ids that exist are never tokenized again; new messages are tokenized alone. A message's text is plain text even if it
 * spells a special token, so no message can open another speaker's turn. Some templates rewrite earlier turns (Qwen3's removes
 * their thinking). Then the existing ids stay, and the conversation continues with new ids for all of its text.
 *
 * Such new ids are a **segment**: a row of its own, with its own mask. A reply appends what the template adds between
 * the conversation before and after. Supervised examples are cut into segments in the same way. Special tokens that the
 * model itself sampled stay special. Templates get no date, and must read all of the user's `templateArguments`.
 */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { isMessage, type Message } from '../../environments/text.ts'
import { asTemplateWants } from '../templates/called-tools.ts'
import type { ChatTemplate, RenderOptions, TemplateArguments } from '../templates/chat-template.ts'
import { NUM_NAMED } from '../templates/local-template.ts'
import { anyOf, type Tokenizer } from './tokenizer.ts'

/** A supervised fine-tuning example as ids. */
export interface TrainingExample {
  readonly ids: number[]
  /** For each id: 1 if the model has to say it, 0 if it is given. */
  readonly lossMask: number[]
}

/** Noncharacters around a special token's number, for tokens that a message spells out, while the template renders. */
const [OPEN, CLOSE] = ['\u{fdd0}', '\u{fdd1}']

/** The ids of a conversation by the chat template. @throws InputError without a template, or if it refuses. */
export function renderIds(tokenizer: Tokenizer, messages: readonly Message[], options: RenderOptions = {}): number[] {
  checkGiven('tokenizer of renderIds', tokenizer, ['encode', 'decode'])
  checkGiven('messages of renderIds', messages, 'a list')
  if (messages.length === 0) throw new InputError('messages', 'none', 'at least one')
  const { addGenerationPrompt = false, tools, variables } = options
  const rendering = new Rendering(tokenizer, tools, variables)
  return rendering.encode(rendering.text(messages, { addGenerationPrompt }), false)
}

/** Prompt ids: a conversation up to the assistant's turn, or a text to continue. @throws InputError as `renderIds`. */
export function promptIds(tokenizer: Tokenizer, prompt: string | readonly Message[], tools?: Tools): number[] {
  checkGiven('tokenizer of promptIds', tokenizer, ['encode', 'decode'])
  return typeof prompt === 'string'
    ? [...tokenizer.beginIds, ...tokenizer.encode(prompt)]
    : renderIds(tokenizer, prompt, { addGenerationPrompt: true, ...(tools === undefined ? {} : { tools }) })
}

/** JSON schemas of the functions that the model may call. */
export type Tools = readonly object[]

/** How a conversation continues after a turn of the assistant. */
export interface NextTurn {
  /** The ids to append; or, after a rewrite, the whole conversation up to the start of the assistant's turn. */
  readonly ids: number[]
  /** True if the template renders the earlier messages differently now that more follow. */
  readonly isRewritten: boolean
}

/**
 * The ids to append when a conversation continues: the end of the assistant's turn, the new messages, and the start of
 * its next turn. Only these are tokenized. `lastId` is the last stored id, so that a turn's end is not repeated.
 *
 * The template must render `after` to a text that begins with the existing one; `nextTurn` also handles templates that
 * do not.
 * @throws InputError, with the place, if it does not (a template that removes thinking from earlier messages, or frames
 * the last one differently); if `before` does not end with the assistant, or `after` does not begin with `before`; and
 * as `renderIds` does.
 */
export function turnIds(
  tokenizer: Tokenizer,
  before: readonly Message[],
  after: readonly Message[],
  lastId: number,
  tools?: Tools,
): number[] {
  checkGiven('tokenizer of turnIds', tokenizer, ['encode', 'decode'])
  checkGiven('before of turnIds', before, 'a list')
  checkGiven('after of turnIds', after, 'a list')
  const { ids, isRewritten } = nextTurn(tokenizer, before, after, lastId, tools)
  if (!isRewritten) return ids
  const rendering = new Rendering(tokenizer, tools)
  throw rendering.refuseStart(rendering.text(after, { addGenerationPrompt: true }), rendering.text(before))
}

/**
 * How a conversation continues: with the ids that `turnIds` appends, or with new ids for all of its text if the
 * template rewrites earlier messages. A template that requires `tool_calls` gets the assistant's calls in that form (`asTemplateWants`).
 * @throws InputError if `before` does not end with the assistant, or `after` does not begin with `before`; and as
 * `renderIds` does.
 */
export function nextTurn(
  tokenizer: Tokenizer,
  before: readonly Message[],
  after: readonly Message[],
  lastId: number,
  tools?: Tools,
  variables?: TemplateArguments,
): NextTurn {
  checkGiven('tokenizer of nextTurn', tokenizer, ['encode', 'decode'])
  checkGiven('before of nextTurn', before, 'a list')
  checkGiven('after of nextTurn', after, 'a list')
  if (before.at(-1)?.role !== 'assistant') throw new InputError('before', roles(before), 'the assistant last')
  const isKept = before.every(
    (message, i) => message === after[i] || JSON.stringify(message) === JSON.stringify(after[i]),
  )
  if (!isKept || after.length === before.length) {
    throw new InputError('after', roles(after), 'the messages of before, then new ones')
  }
  const go = (messages: readonly Message[], numStood: number): NextTurn => {
    const rendering = new Rendering(tokenizer, tools, variables)
    const stood = messages.slice(0, numStood)
    const old = rendering.text(stood)
    const text = rendering.text(messages, { addGenerationPrompt: true })
    const closing = text.startsWith(old) ? rendering.closing(stood, old) : rendering.spoken(stood, text)
    if (closing === null) return { ids: rendering.encode(text, false), isRewritten: true }
    const { end, close } = closing
    if (end === null) return { ids: rendering.encode(text.slice(close), true), isRewritten: false }
    const told = rendering.encodeBehind(end, text)
    return { ids: lastId === end.id ? told : [end.id, ...told], isRewritten: false }
  }
  return (
    withoutMiddle(tokenizer, before, after, go) ?? asTemplateWants(after, (messages) => go(messages, before.length))
  )
}

/** Messages before the new ones that stay when a long conversation is rendered without its middle. */
const NUM_KEPT = 6

/** Renders a long conversation without its middle, if the template gives the same result; null if it might not. */
function withoutMiddle(
  { chatTemplate }: Tokenizer,
  before: readonly Message[],
  after: readonly Message[],
  go: (messages: readonly Message[], numStood: number) => NextTurn,
): NextTurn | null {
  // An even number: templates may treat messages of even and odd index differently.
  const numLeftOut = 2 * Math.floor((before.length - NUM_NAMED - NUM_KEPT) / 2)
  if (chatTemplate?.isLocal !== true || numLeftOut <= 0) return null
  const rest = after.slice(NUM_NAMED + numLeftOut)
  try {
    const next = go([...after.slice(0, NUM_NAMED), ...rest], before.length - numLeftOut)
    return next.isRewritten ? null : next
  } catch (error) {
    if (error instanceof InputError) return null // The full rendering reports the error, if there is one.
    throw error
  }
}

/**
 * The training rows of a conversation, or of a prompt and its answer. The mask is 1 for the assistant's words and the
 * token that ends its turn. Each piece is tokenized as the model will meet it: the prompt up to the start of a turn,
 * then its words. There are several rows if the template rewrites earlier turns: each row ends with the last turn that
 * the template renders as the model says it. An answer to the empty prompt is a text that is learned whole. Messages
 * after a plain text are concatenated, each of the assistant's with an end token.
 * @throws InputError for a conversation in which the assistant says nothing, a template that renders the assistant's
 * turn differently than its prompt begins it or without an end token after its words, a tokenizer without end ids, and
 * as `renderIds` does.
 */
export function trainingRows(
  tokenizer: Tokenizer,
  example:
    | readonly Message[]
    | {
        readonly prompt: string | readonly Message[]
        readonly answer: string | readonly Message[]
        /** Learn only the answer, not earlier turns of the assistant in the prompt. */
        readonly answerOnly?: boolean
      },
  tools?: Tools,
): TrainingExample[] {
  checkGiven('tokenizer of trainingRows', tokenizer, ['encode', 'decode'])
  const rowsOf = (messages: readonly Message[], from = 0) =>
    asTemplateWants(messages, (wanted) => conversationRows(tokenizer, wanted, tools, from))
  if (!('answer' in example)) return rowsOf(example)
  const { prompt, answer, answerOnly = false } = example
  const said = typeof answer === 'string' ? [{ role: 'assistant', content: answer }] : answer
  if (typeof prompt !== 'string') return rowsOf([...prompt, ...said], answerOnly ? prompt.length : 0)
  const [end] = tokenizer.endIds
  if (end === undefined) throw new InputError(`tokenizer ${tokenizer.id}`, 'no end id', 'an end id, to end an answer')
  const ids = promptIds(tokenizer, prompt)
  const lossMask = ids.map(() => 0)
  for (const { role, content } of said) {
    const more = tokenizer.encode(content ?? '', { continues: prompt !== '' || lossMask.includes(1) })
    if (role === 'assistant') more.push(end)
    for (const id of more) {
      ids.push(id)
      lossMask.push(role === 'assistant' ? 1 : 0)
    }
  }
  return [{ ids, lossMask }]
}

/** The rows that learn the assistant's turns from message `from` on. */
function conversationRows(
  tokenizer: Tokenizer,
  messages: readonly Message[],
  tools: Tools | undefined,
  from: number,
): TrainingExample[] {
  const rendering = new Rendering(tokenizer, tools)
  const rows: { ids: number[]; lossMask: number[] }[] = []
  const add = (more: number[], mask: 0 | 1): void => {
    const { ids, lossMask } = rows.at(-1)!
    for (const id of more) {
      ids.push(id)
      lossMask.push(mask)
    }
  }
  /** The assistant's last turn as it says it, and the token that ends it. */
  let said = ''
  let end: EndToken | null = null
  const isKept = (text: string) => end !== null && text.startsWith(said.slice(0, end.to))
  for (const [index, { role }] of messages.entries()) {
    if (role !== 'assistant' || index < from) continue
    const prompt = rendering.text(messages.slice(0, index), { addGenerationPrompt: true })
    const whole = rendering.text(messages.slice(0, index + 1))
    rendering.checkStart(whole, prompt)
    if (isKept(prompt)) add(rendering.encodeBehind(end!, prompt), 0)
    else {
      rows.push({ ids: [], lossMask: [] })
      add(rendering.encode(prompt, false), 0)
    }
    ;[said, end] = [whole, rendering.firstEnd(whole, prompt.length)]
    if (end === null) throw rendering.refuse("no end token after the assistant's words", 'one of the end ids')
    add(rendering.encode(whole.slice(prompt.length, end.from), true), 1)
    add([end.id], 1)
  }
  if (end === null) throw new InputError('messages', roles(messages), 'text by the assistant')
  const text = rendering.text(messages)
  add(rendering.encodeBehind(end, isKept(text) ? text : said), 0)
  return rows
}

/** A token that ends a turn, and the range of its text. */
interface EndToken {
  readonly id: number
  readonly from: number
  readonly to: number
}

/** Renders with a tokenizer's template. Special tokens in messages are kept apart from the template's. */
class Rendering {
  readonly #tokenizer: Tokenizer
  readonly #template: ChatTemplate
  /** The special tokens numbered between OPEN and CLOSE. */
  readonly #spelled: readonly string[]
  readonly #pattern: RegExp
  readonly #told: Pick<RenderOptions, 'tools' | 'variables'>

  constructor(tokenizer: Tokenizer, tools: Tools | undefined, variables: TemplateArguments = {}) {
    if (tokenizer.chatTemplate === null) {
      throw new InputError(`tokenizer ${tokenizer.id}`, 'no chat template', 'a chat template, for messages')
    }
    this.#tokenizer = tokenizer
    this.#template = tokenizer.chatTemplate
    this.#spelled = [...tokenizer.specialTokens, OPEN, CLOSE]
    this.#pattern = anyOf(this.#spelled, 'g')
    this.#told = {
      ...(tools === undefined ? {} : { tools: this.#mark(tools) as Tools }),
      variables: this.#mark(variables) as TemplateArguments,
    }
  }

  /** A rendered conversation, in which special tokens come only from the template. */
  text(messages: readonly Message[], options?: RenderOptions): string {
    for (const message of messages) {
      if (isMessage(message)) continue
      throw new InputError('message', show(message), 'a message like { role: "user", content: "2+2=" }')
    }
    const marked = messages.map(({ role, ...message }) => ({
      role,
      ...(this.#mark(message) as { content: string | null }),
      content: this.#contentOf({ role, ...message }),
    }))
    return this.#template.render(marked, { ...options, ...this.#told })
  }

  /** The message's content for the template: its special tokens as text, except those that the model sampled. */
  #contentOf({ role, content, spelled }: Message): string | null {
    if (content === null) return null
    if (role !== 'assistant' || spelled === undefined) return this.#mark(content) as string
    const { text, special } = spelled as { text: string; special: readonly number[] }
    return this.#mark(text, special) as string
  }

  /** Numbers the special tokens in texts, also inside lists and objects. Other values stay as they are. */
  #mark(value: unknown, special: readonly number[] = []): unknown {
    if (Array.isArray(value)) return value.map((element) => this.#mark(element))
    if (typeof value === 'object' && value !== null) {
      return Object.fromEntries(Object.entries(value).map(([name, element]) => [name, this.#mark(element)]))
    }
    if (typeof value !== 'string') return value
    return value.replace(this.#pattern, (token, place: number) =>
      special.includes(place) ? token : `${OPEN}${this.#spelled.indexOf(token)}${CLOSE}`,
    )
  }

  encode(text: string, continues: boolean): number[] {
    const pieces = text.split(new RegExp(`${OPEN}(\\d+)${CLOSE}`))
    return pieces.flatMap((piece, index) => {
      if (index % 2 === 1) return this.#tokenizer.encode(this.#spelled[Number(piece)]!, { continues: true })
      return piece === '' ? [] : this.#tokenizer.encode(piece, { special: true, continues: continues || index > 0 })
    })
  }

  /** The ids after an end token. It is tokenized along, since some tokenizers depend on it. */
  encodeBehind(end: EndToken, text: string): number[] {
    const ids = this.encode(text.slice(end.from), true)
    return ids[0] === end.id ? ids.slice(1) : this.encode(text.slice(end.to), true)
  }

  /** Throws if a longer conversation's text does not begin with that of its first messages. */
  checkStart(text: string, start: string): void {
    if (!text.startsWith(start)) throw this.refuseStart(text, start)
  }

  /** The error for a text that does not begin with `start`. */
  refuseStart(text: string, start: string): InputError {
    let at = 0
    while (text[at] === start[at]) at++
    const around = (whole: string) => show(whole.slice(Math.max(0, at - 12), at + 24))
    return this.refuse(
      `the earlier messages change when more follow: at character ${at}, ${around(start)} becomes ${around(text)}`,
      'a template that keeps them (it may remove thinking, or frame the last message differently)',
    )
  }

  firstEnd(text: string, from: number): EndToken | null {
    return this.#ends(text, from)[0] ?? null
  }

  /** How `old` closes, whose last message is the assistant's: its end token, or where its words end. */
  closing(messages: readonly Message[], old: string): { end: EndToken | null; close: number } {
    const others = messages.slice(0, -1)
    // Some templates begin the assistant's turn differently than they render it, but not the messages before.
    const prompt = this.text(others, { addGenerationPrompt: true })
    const start = old.startsWith(prompt) ? prompt : this.text(others)
    this.checkStart(old, start)
    const end = this.#ends(old, start.length).at(-1)
    if (end !== undefined) return { end, close: end.to }
    if (messages.at(-1)!.tool_calls !== undefined) {
      throw this.refuse('no end token after the tool calls', 'one of the end ids')
    }
    const content = this.#contentOf(messages.at(-1)!) ?? ''
    const [said] = [content, content.trim()].filter((words) => old.lastIndexOf(words) >= start.length)
    if (said === undefined) throw this.refuse('neither the words of the assistant nor an end token', 'either of them')
    return { end: null, close: old.lastIndexOf(said) + said.length }
  }

  /**
   * Where the assistant's turn ends in `text`, the rendering of a longer conversation, and with which end token. Null unless
   * `text` repeats the turn's prompt and the model's own text before that end token. A template may still render a last
   * turn differently.
   */
  spoken(messages: readonly Message[], text: string): { end: EndToken; close: number } | null {
    const prompt = this.text(messages.slice(0, -1), { addGenerationPrompt: true })
    const last = messages.at(-1)!
    const said = prompt + (this.#contentOf(last) ?? '')
    if (!text.startsWith(said)) return null
    const end = this.#ends(text, said.length)[0]
    // Tool calls are between the words and the end token, in the template's own format.
    const isClosed = end !== undefined && (end.from === said.length || last.tool_calls !== undefined)
    return isClosed ? { end, close: end.to } : null
  }

  refuse(got: string, expected: string): InputError {
    return new InputError(this.#template.name, got, expected)
  }

  #ends(text: string, from: number): EndToken[] {
    const { endIds } = this.#tokenizer
    const texts = endIds.map((id) => this.#tokenizer.decode([id]))
    return [...text.slice(from).matchAll(anyOf(texts, 'g'))].map(({ 0: token, index }) => ({
      id: endIds[texts.indexOf(token)]!,
      from: from + index,
      to: from + index + token.length,
    }))
  }
}

function roles(messages: readonly Message[]): string {
  return `messages of roles ${show(messages.map(({ role }) => role))}`
}
