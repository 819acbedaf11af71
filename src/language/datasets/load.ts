/** Loads datasets from files or the Hugging Face hub as examples, for conversations and supervised fine-tuning. */
import { InputError, show, similar, unknownWord } from '../../base/errors.ts'
import type { Example, Message } from '../../environments/text.ts'
import { checkLimit, messagesOf, promptOf, textOf } from './example.ts'
import { inKnownColumns } from './known-columns.ts'
import { labelledOf, pairOf } from './preferences.ts'
import { type DatasetRow, type RowOptions, readRows } from './rows.ts'

/** Which rows to read, and the names of their columns. */
export interface DatasetOptions<Column extends string> extends RowOptions {
  /** The file's names of our columns, if they differ: `{ prompt: 'question' }`. */
  readonly columns?: Readonly<Partial<Record<Column, string>>>
  readonly limit?: number
}

const PROMPT_COLUMNS = ['prompt', 'answer'] as const
type PromptColumn = (typeof PROMPT_COLUMNS)[number]

/**
 * Prompts for reinforcement learning: each row's `prompt` (a text or messages), its `answer` if it has one, and its
 * other columns unchanged. The file is JSON Lines, JSON, Arrow or Parquet; `path@[a:b]` selects rows a to b − 1. An id,
 * owner/name, is a dataset on the hub, with `subset` and `split`.
 * @throws InputError, with the row's place, for a missing prompt or an answer that is not text; and as `readRows` does.
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

/** Prompts as from `loadRlPrompts`, each with an answer. @throws InputError as it does, and for a missing answer. */
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

/** An answer as text; numbers are written out. */
function answerOf(value: unknown, place: string): string {
  return typeof value === 'number' && Number.isFinite(value) ? String(value) : textOf(value, place)
}

/** A supervised example: a text, a conversation whose assistant turns are learned, or a prompt and its answer. */
export type SftExample =
  | { readonly text: string }
  | { readonly messages: readonly Message[] }
  | { readonly prompt: string | readonly Message[]; readonly answer: string }

/** Columns of supervised datasets, as in TRL: one of these sets. */
const SFT_SCHEMAS = [['text'], ['messages'], ['prompt', 'completion']] as const
type SftColumn = (typeof SFT_SCHEMAS)[number][number]

/**
 * A dataset for supervised fine-tuning, in one of TRL's schemas: `text`; `messages`; or `prompt` and `completion`, both
 * text, or messages with one assistant message as completion. The first row decides; if it fits several, `columns`
 * chooses. Files, hub datasets and slices are as in `loadRlPrompts`.
 * @throws InputError, with the row's place, for a row of no schema, or of another than the first; and as `readRows`
 * does.
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
  throw new InputError(place, `${there}, of several schemas`, `${EXPECTED}; choose with columns`)
}

const EXPECTED = 'text, messages, or prompt and completion'

/** The error for a row that lacks the needed columns: lists its columns, and suggests similar names. */
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
  const expected = `${EXPECTED}; name them with columns${hint}`
  return new InputError(place, `the columns ${there.join(', ')}`, expected)
}

/** Throws for a row that lacks these columns, by the file's names, and names the nearest. */
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

/** Converts a supervised example: a text is the answer to an empty prompt; a conversation includes its answers. */
export function exampleOf(example: SftExample): Example {
  if ('text' in example) return { prompt: '', answer: example.text }
  if (!('messages' in example)) return example
  const end = example.messages.findLastIndex(({ role }) => role === 'assistant')
  return { prompt: example.messages.slice(0, end + 1) } // Nothing after it is learned.
}

const EXAMPLE_COLUMNS = [
  'prompt',
  'answer',
  'completion',
  'messages',
  'text',
  'chosen',
  'rejected',
  'label',
  'margin',
] as const
type ExampleColumn = (typeof EXAMPLE_COLUMNS)[number]

/** The kinds of rows, each with the column that shows it; the first match counts. */
const KINDS = ['chosen', 'label', 'prompt', 'messages', 'text'] as const
/** Further columns that these kinds need. */
const NEEDS: { readonly [Kind in ExampleColumn]?: readonly ExampleColumn[] } = {
  chosen: ['rejected'],
  label: ['prompt', 'completion'],
}

/** A row with an answer is not compared; other labels than these are data. */
function isKind(kind: (typeof KINDS)[number], { answer, label }: Readonly<Record<string, unknown>>): boolean {
  if (!(kind in NEEDS)) return true
  const hasAnswer = answer !== undefined && answer !== null
  return !hasAnswer && (kind !== 'label' || [true, false, 0, 1].includes(label as number))
}

/**
 * The examples of a dataset for any training: prompts with answers, as from `loadRlPrompts`, or with `completion` as
 * the answer; pairs of answers (`chosen` and `rejected`) or answers with a `label` to compare; or conversations
 * (`messages`) or texts (`text`) to learn. ShareGPT's and Alpaca's columns count as those. The first row decides.
 * @throws InputError, with the row's place, for a row that fits none, with the nearest columns; for a named column that
 * no row has; and as `readRows` does.
 */
export async function loadExamples(path: string, options: DatasetOptions<ExampleColumn> = {}): Promise<Example[]> {
  const examples: Example[] = []
  let kind: (typeof KINDS)[number] | undefined
  for await (const { place, row } of limited(path, options, EXAMPLE_COLUMNS)) {
    const isThere = (column: ExampleColumn) => row[column] !== undefined && row[column] !== null
    const at = (column: ExampleColumn) => `${place}, ${named(column, options)}`
    kind ??= KINDS.find((each) => isThere(each) && (NEEDS[each] ?? []).every(isThere) && isKind(each, row))
    if (kind === undefined) throw noSchema(row, ['prompt', 'messages', 'text'], place, options)
    checkColumns(row, [kind, ...(NEEDS[kind] ?? [])], place, options)
    if (kind === 'chosen') examples.push(pairOf(row, at))
    else if (kind === 'label') examples.push(labelledOf(row, at))
    else if (kind === 'text') examples.push(exampleOf({ text: textOf(row.text, at('text')) }))
    else if (kind === 'messages') {
      const { tools } = row
      const example = exampleOf({ messages: conversationOf(row.messages, at('messages')) })
      examples.push(tools === undefined || tools === null ? example : { ...example, tools: tools as object[] })
    } else {
      const { prompt: given, answer, ...others } = row
      const prompt = promptOf(given, at('prompt'))
      if (isThere('answer')) examples.push({ ...others, prompt, answer: answerOf(answer, at('answer')) })
      else if (!isThere('completion')) examples.push({ ...others, prompt })
      else {
        const { completion, ...rest } = others // The completion is the answer.
        examples.push({ ...rest, prompt, answer: completionOf(completion, prompt, at('completion')) })
      }
    }
  }
  return examples
}

/** Messages, at least one of them the assistant's. @throws InputError for other values. */
export function conversationOf(value: unknown, place: string): readonly Message[] {
  const messages = messagesOf(value, place)
  if (messages.some(({ role }) => role === 'assistant')) return messages
  throw new InputError(place, `roles ${show(messages.map(({ role }) => role))}`, 'text by the assistant')
}

function completionOf(value: unknown, prompt: string | readonly Message[], place: string): string {
  if (typeof prompt === 'string') return textOf(value, place)
  const messages = messagesOf(value, place)
  const [{ role, content }] = messages as [Message]
  if (messages.length === 1 && role === 'assistant' && content !== null) return content
  throw new InputError(place, `roles ${show(messages.map(({ role }) => role))}`, 'one message, of the assistant')
}

/** The file's name of one of our columns. */
function named<Column extends string>(column: Column, { columns }: DatasetOptions<Column>): string {
  return columns?.[column] ?? column
}

/** The rows of a source with our column names; unknown columns keep their names. */
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
    const renamed = Object.fromEntries([...kept, ...ours.map(([name, from]) => [name, row[from]])])
    yield { place, row: inKnownColumns(renamed, place) }
    if (++count === limit) break
  }
  for (const [, from] of ours) if (!seen.has(from)) throw unknownWord(`${path}, column`, from, [...seen])
}
