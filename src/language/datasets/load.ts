/** Datasets from files, or from the Hugging Face hub, as examples: what conversations begin with, and what supervised fine-tuning learns. */
import { InputError, show, similar, unknownWord } from '../../base/errors.ts'
import type { Example, Message } from '../../environments/text.ts'
import { checkLimit, messagesOf, promptOf, textOf } from './example.ts'
import { type DatasetRow, type RowOptions, readRows } from './rows.ts'

/** Which rows of a file or of a dataset of the hub, and what its columns are called. */
export interface DatasetOptions<Column extends string> extends RowOptions {
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
    checkColumns(row, ['prompt'], place, options)
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
    checkColumns(row, PROMPT_COLUMNS, place, options)
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
  if (found.length === 0) throw noSchema(row, SFT_SCHEMAS.flat(), place, { columns })
  const there = `the columns ${Object.keys(row).filter(isThere).join(', ')}`
  throw new InputError(place, `${there}, of several schemas`, `${EXPECTED}; columns says which is meant`)
}

const EXPECTED = 'text, messages, or prompt and completion'

/** The error of a row that has none of the columns that are wanted: with those that it has, and which of them may be meant. */
function noSchema<Column extends string>(
  row: Readonly<Record<string, unknown>>,
  wanted: readonly Column[],
  place: string,
  options: Pick<DatasetOptions<Column>, 'columns'>,
): InputError {
  const there = Object.keys(row).filter((name) => row[name] !== undefined && row[name] !== null)
  const mistaken = Object.entries((options.columns ?? {}) as Record<string, string>).find(
    ([ours]) => row[ours] === undefined,
  )
  if (mistaken !== undefined) return unknownWord(`${place}, column`, mistaken[1], there)
  const hints = wanted.flatMap((column) => {
    const near = there.includes(column) ? undefined : similar(named(column, options), there)
    return near === undefined ? [] : [`${show(near)} for ${column}`]
  })
  const hint = hints.length === 0 ? '' : ` (did you mean ${hints.join(', ')}?)`
  const expected = `${EXPECTED}; columns says what they are called${hint}`
  return new InputError(place, `the columns ${there.join(', ')}`, expected)
}

/** Throws for a row that has not these columns at all, by the names that the file has for them, and names the nearest. */
function checkColumns<Column extends string>(
  row: Readonly<Record<string, unknown>>,
  wanted: readonly Column[],
  place: string,
  options: DatasetOptions<Column>,
): void {
  const there = Object.keys(row).filter((name) => row[name] !== undefined)
  const missing = wanted.find((column) => row[column] === undefined)
  if (missing === undefined) return
  throw unknownWord(`${place}, column`, named(missing, options), there)
}

/** An example to learn as conversations begin with it: a text is the answer to nothing, a conversation a prompt that is whole. */
export function exampleOf(example: SftExample): Example {
  if ('text' in example) return { prompt: '', answer: example.text }
  if (!('messages' in example)) return example
  const end = example.messages.findLastIndex(({ role }) => role === 'assistant')
  return { prompt: example.messages.slice(0, end + 1) } // Behind it there is nothing to learn.
}

const EXAMPLE_COLUMNS = ['prompt', 'answer', 'completion', 'messages', 'text'] as const
type ExampleColumn = (typeof EXAMPLE_COLUMNS)[number]

/**
 * The examples of a dataset, for whatever training: prompts with their answers, as `loadRlPrompts` reads them, or with a
 * `completion` in the answer's place; conversations (`messages`), or texts (`text`), to learn. The first row decides which.
 * @throws InputError with the place of a row that is none of them, which names the nearest columns; for a column that is
 * named and no row has; and as `readRows` does.
 */
export async function loadExamples(path: string, options: DatasetOptions<ExampleColumn> = {}): Promise<Example[]> {
  const examples: Example[] = []
  let kind: ExampleColumn | undefined
  for await (const { place, row } of limited(path, options, EXAMPLE_COLUMNS)) {
    const isThere = (column: ExampleColumn) => row[column] !== undefined && row[column] !== null
    const at = (column: ExampleColumn) => `${place}, ${named(column, options)}`
    kind ??= (['prompt', 'messages', 'text'] as const).find(isThere)
    if (kind === undefined) throw noSchema(row, EXAMPLE_COLUMNS, place, options)
    checkColumns(row, [kind], place, options)
    if (kind === 'text') examples.push(exampleOf({ text: textOf(row.text, at('text')) }))
    else if (kind === 'messages') examples.push(exampleOf({ messages: conversationOf(row.messages, at('messages')) }))
    else {
      const { prompt: given, answer, ...others } = row
      const prompt = promptOf(given, at('prompt'))
      if (isThere('answer')) examples.push({ ...others, prompt, answer: answerOf(answer, at('answer')) })
      else if (!isThere('completion')) examples.push({ ...others, prompt })
      else {
        const { completion, ...rest } = others // It is the answer.
        examples.push({ ...rest, prompt, answer: completionOf(completion, prompt, at('completion')) })
      }
    }
  }
  return examples
}

/** Messages of which the assistant says some. @throws InputError for what is none. */
export function conversationOf(value: unknown, place: string): readonly Message[] {
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
  const seen = new Set<string>()
  let count = 0
  for await (const { place, row } of readRows(path, source)) {
    for (const name of Object.keys(row)) seen.add(name)
    const kept = Object.entries(row).filter(([name]) => !theirs.has(name))
    yield { place, row: Object.fromEntries([...kept, ...ours.map(([name, from]) => [name, row[from]])]) }
    if (++count === limit) break
  }
  for (const [, from] of ours) if (!seen.has(from)) throw unknownWord(`${path}, column`, from, [...seen])
}
