/** Datasets from files, or from the Hugging Face hub, as examples: what conversations begin with, and what supervised fine-tuning learns. */
import type { Example, Message } from '../environments/text.ts'
import { InputError, show, unknownWord } from '../errors.ts'
import { checkLimit, messagesOf, promptOf, textOf } from './example.ts'
import type { SplitOptions } from './hub-dataset.ts'
import { type DatasetRow, readRows } from './rows.ts'

/** Which rows of a file or of a dataset of the hub, and what its columns are called. */
export interface DatasetOptions<Column extends string> extends SplitOptions {
  /** What the file calls a column, where it is not our name: `{ prompt: 'question' }`. */
  readonly columns?: Readonly<Partial<Record<Column, string>>>
  /** How many rows are read, at most. */
  readonly limit?: number
}

const PROMPT_COLUMNS = ['prompt', 'answer'] as const
type PromptColumn = (typeof PROMPT_COLUMNS)[number]

/**
 * Prompts for reinforcement learning: the `prompt` of each row, a text or messages, its `answer` where it has one, and its
 * other columns as they are. The file is JSON Lines, JSON, Arrow or Parquet; `path@[a:b]` are rows a to b − 1. An id,
 * owner/name, is a dataset of the hub, of which `subset` and `split` are taken.
 * @throws InputError with the place of a row that has no prompt, or an answer that is no text; and as `readRows` does.
 * @example await loadRlPrompts('openai/gsm8k@[0:1000]', { subset: 'main', columns: { prompt: 'question' } })
 */
export async function loadRlPrompts(path: string, options: DatasetOptions<PromptColumn> = {}): Promise<Example[]> {
  const examples: Example[] = []
  for await (const { place, row } of limited(path, options, PROMPT_COLUMNS)) {
    const { prompt, answer, ...others } = row
    const hasAnswer = answer !== undefined && answer !== null
    examples.push({
      ...others,
      prompt: promptOf(prompt, `${place}, ${named('prompt', options)}`),
      ...(hasAnswer ? { answer: answerOf(answer, `${place}, ${named('answer', options)}`) } : {}),
    })
  }
  return examples
}

/**
 * Prompts as `loadRlPrompts` reads them, each with its answer.
 * @throws InputError with the place of a row that has none; and as `loadRlPrompts` does.
 */
export async function loadDatasetWithAnswers(
  path: string,
  options: DatasetOptions<PromptColumn> = {},
): Promise<(Example & { readonly answer: string })[]> {
  const examples: (Example & { readonly answer: string })[] = []
  for await (const { place, row } of limited(path, options, PROMPT_COLUMNS)) {
    examples.push({
      ...row,
      prompt: promptOf(row.prompt, `${place}, ${named('prompt', options)}`),
      answer: answerOf(row.answer, `${place}, ${named('answer', options)}`),
    })
  }
  return examples
}

/** An answer as text; a number is written out. */
function answerOf(value: unknown, place: string): string {
  return typeof value === 'number' && Number.isFinite(value) ? String(value) : textOf(value, place)
}

/** What supervised fine-tuning learns: a text, what the assistant says in a conversation, or the answer to a prompt. */
export type SftExample =
  | { readonly text: string }
  | { readonly messages: readonly Message[] }
  | { readonly prompt: string | readonly Message[]; readonly answer: string }

/** The columns that a dataset for supervised fine-tuning has, as TRL calls them: one of these sets. */
const SFT_SCHEMAS = [['text'], ['messages'], ['prompt', 'completion']] as const
type SftColumn = (typeof SFT_SCHEMAS)[number][number]

/**
 * A dataset for supervised fine-tuning, in one of TRL's schemas: `text`; `messages`; or `prompt` and `completion`, both as
 * text, or as messages of which the completion is the assistant's one. The first row decides which; where it has more than
 * one, `columns` says which is meant. Files, datasets of the hub and slices are as in `loadRlPrompts`.
 * @throws InputError with the place of a row that is of none of them, or of another than the first; and as `readRows` does.
 * @example await loadSftDataset('train.jsonl', { columns: { prompt: 'question', completion: 'answer' } })
 */
export async function loadSftDataset(path: string, options: DatasetOptions<SftColumn> = {}): Promise<SftExample[]> {
  const examples: SftExample[] = []
  let schema: (typeof SFT_SCHEMAS)[number] | undefined
  for await (const { place, row } of limited(path, options, SFT_SCHEMAS.flat())) {
    schema ??= schemaOf(row, place, options)
    const at = (column: SftColumn) => `${place}, ${named(column, options)}`
    if (schema[0] === 'text') examples.push({ text: textOf(row.text, at('text')) })
    else if (schema[0] === 'messages') examples.push({ messages: conversationOf(row.messages, at('messages')) })
    else {
      const prompt = promptOf(row.prompt, at('prompt'))
      examples.push({ prompt, answer: completionOf(row.completion, prompt, at('completion')) })
    }
  }
  return examples
}

function schemaOf(row: Readonly<Record<string, unknown>>, place: string, { columns = {} }: DatasetOptions<SftColumn>) {
  const isThere = (column: string) => row[column] !== undefined && row[column] !== null
  const meant = Object.keys(columns)
  const found = SFT_SCHEMAS.filter(
    (schema) => schema.every(isThere) && meant.every((column) => (schema as readonly string[]).includes(column)),
  )
  if (found.length === 1) return found[0]!
  const there = `the columns ${Object.keys(row).filter(isThere).join(', ')}`
  const expected = 'text, messages, or prompt and completion; columns says what they are called'
  throw new InputError(place, found.length === 0 ? there : `${there}, of several schemas`, expected)
}

function conversationOf(value: unknown, place: string): readonly Message[] {
  const messages = messagesOf(value, place)
  if (messages.some(({ role }) => role === 'assistant')) return messages
  throw new InputError(place, `roles ${show(messages.map(({ role }) => role))}`, 'something that the assistant says')
}

function completionOf(value: unknown, prompt: string | readonly Message[], place: string): string {
  if (typeof prompt === 'string') return textOf(value, place)
  const messages = messagesOf(value, place)
  const [{ role, content }] = messages as [Message]
  if (messages.length === 1 && role === 'assistant' && content !== null) return content
  throw new InputError(place, `roles ${show(messages.map(({ role }) => role))}`, 'one message, of the assistant')
}

/** What the file calls one of our columns. */
function named<Column extends string>(column: Column, { columns }: DatasetOptions<Column>): string {
  return columns?.[column] ?? column
}

/** The rows of a source with its columns under our names; a column that has no name of ours keeps its own. */
async function* limited<Column extends string>(
  path: string,
  { columns, limit, ...source }: DatasetOptions<Column>,
  known: readonly Column[],
): AsyncGenerator<DatasetRow, void, undefined> {
  checkLimit(limit)
  const ours = Object.entries<string>((columns ?? {}) as Record<string, string>)
  for (const [name] of ours) {
    if (!(known as readonly string[]).includes(name)) throw unknownWord('columns', name, known)
  }
  const theirs = new Set(ours.flat())
  let count = 0
  for await (const { place, row } of readRows(path, source)) {
    const kept = Object.entries(row).filter(([name]) => !theirs.has(name))
    yield { place, row: Object.fromEntries([...kept, ...ours.map(([name, from]) => [name, row[from]])]) }
    if (++count === limit) return
  }
}
