/** The conversations of a run as a page reads them: a group at a time, side by side, with what each token says and was worth. */
import { readToolCalls } from '../../environments/tools/tool-calls.ts'
import type { ArrowTable } from '../../tables/arrow.ts'

/** Conversations of a group and tokens of a conversation that are shown. */
const [MEMBERS_MAX, TOKENS_MAX] = [32, 2000]
/** Digits of a number that is shown. */
const DIGITS = 4
/** Of which all conversations of a group have the same. */
const GROUP = ['source', 'epoch', 'group', 'promptId'] as const
const NEEDED = [...GROUP, 'member', 'prompt', 'reward', 'advantage', 'stopReason', 'error'] as const
const LISTS = ['tokens', 'lossMask', 'versions', 'logprobs', 'turn'] as const
const COMPONENT = 'reward/'

/** A call of a tool in what the model wrote: its tokens within their block, and what it asks. */
export interface ShownCall {
  readonly from: number
  readonly to: number
  readonly said: string
}

/** Tokens one after another that the model said, or that it was told, in one turn. */
export interface TokenBlock {
  readonly turn: number
  readonly isOfModel: boolean
  readonly texts: readonly string[]
  /** In nats; null where none is recorded. */
  readonly logprobs: readonly (number | null)[]
  /** 1 where there is something to learn. */
  readonly lossMask: readonly number[]
  readonly calls: readonly ShownCall[]
}

/** A conversation, or a segment of one. */
export interface ShownConversation {
  readonly member: number
  readonly segment: number
  readonly reward: number | null
  /** What the reward is made of, by name. */
  readonly components: Readonly<Record<string, number | null>>
  readonly advantage: number | null
  readonly stopReason: string
  readonly error: string | null
  readonly blocks: readonly TokenBlock[]
  readonly numTokens: number
  /** All that was said after the prompt, of a file that does not say what each token is; null where nobody knows. */
  readonly completion: string | null
}

/** A group of conversations of one file. */
export interface ShownGroup {
  /** Its place among the groups of the file, from 0, and how many there are. */
  readonly place: number
  readonly numGroups: number
  readonly source: string
  readonly epoch: number
  readonly group: number
  readonly promptId: number
  readonly answer: string | null
  /** How many conversations it has, of which `conversations` are the first. */
  readonly numConversations: number
  readonly conversations: readonly ShownConversation[]
}

/**
 * A group of a table of conversations; null where there are not so many.
 * @throws Error for a table of something else.
 */
export function groupOf(table: ArrowTable, place: number): ShownGroup | null {
  const column = (name: string) => {
    const found = table.getChild(name)
    if (found === null) throw new Error(`columns: got none of the name ${name}, expected a table of conversations`)
    return found
  }
  for (const name of [...NEEDED, ...LISTS]) column(name)
  const ids = GROUP.map(column)
  const isSame = (a: number, b: number) => ids.every((vector) => vector.get(a) === vector.get(b))
  const starts: number[] = []
  for (let row = 0; row < table.numRows; row++) if (row === 0 || !isSame(row - 1, row)) starts.push(row)
  const [from, to] = [starts[place], starts[place + 1] ?? table.numRows]
  if (from === undefined) return null
  const [source, epoch, group, promptId] = ids.map((vector) => vector.get(from)) as [string, number, number, number]
  const rows = Array.from({ length: Math.min(to - from, MEMBERS_MAX) }, (_, i) => from + i)
  return {
    ...{ place, numGroups: starts.length, source, epoch, group, promptId },
    answer: table.getChild('answer')?.get(from) ?? null,
    numConversations: to - from,
    conversations: rows.map((row) => conversationOf(table, row)),
  }
}

function conversationOf(table: ArrowTable, row: number): ShownConversation {
  const value = (name: string) => table.getChild(name)?.get(row) ?? null
  const components = table.schema.fields.filter(({ name }) => name.startsWith(COMPONENT))
  const texts = value('tokenTexts') as Iterable<string> | null
  return {
    ...{ member: value('member'), segment: value('segment') ?? 0, reward: value('reward') },
    components: Object.fromEntries(components.map(({ name }) => [name.slice(COMPONENT.length), value(name)])),
    ...{ advantage: value('advantage'), stopReason: value('stopReason'), error: value('error') },
    blocks: texts === null ? [] : blocksOf([...texts].slice(0, TOKENS_MAX), value),
    numTokens: value('tokens').length,
    completion: texts === null ? value('completion') : null,
  }
}

function blocksOf(texts: readonly string[], value: (name: string) => Iterable<number | null>): TokenBlock[] {
  const [, lossMask, versions, logprobs, turns] = LISTS.map((name) => [...value(name)]) as [
    ...[number[], number[], number[]],
    (number | null)[],
    number[],
  ]
  const isOfModel = (t: number) => lossMask[t] === 1 || versions[t] !== -1
  const blocks: TokenBlock[] = []
  for (let from = 0, to = 0; from < texts.length; from = to) {
    for (to = from + 1; to < texts.length; to++) {
      if (turns[to] !== turns[from] || isOfModel(to) !== isOfModel(from)) break
    }
    const said = texts.slice(from, to)
    blocks.push({
      ...{ turn: turns[from]!, isOfModel: isOfModel(from), texts: said },
      logprobs: logprobs.slice(from, to).map((each) => each && Number(each.toPrecision(DIGITS))),
      lossMask: lossMask.slice(from, to),
      calls: isOfModel(from) ? callsIn(said) : [],
    })
  }
  return blocks
}

/** The calls of tools in a turn, in the forms that are known. */
function callsIn(texts: readonly string[]): ShownCall[] {
  const raw = texts.join('')
  const pieces = readToolCalls(raw)
  const ends: number[] = []
  for (const text of texts) ends.push((ends.at(-1) ?? 0) + text.length)
  // A list of calls in JSON is not written as its pieces are: these go to the end.
  const isWhole = pieces.map(({ text }) => text).join('') === raw
  const calls: ShownCall[] = []
  let at = 0
  for (const { text, call } of pieces) {
    const begin = at
    at = isWhole || call === null ? at + text.length : raw.length
    if (call === null || begin >= raw.length) continue
    const said = 'malformed' in call ? `malformed call: ${call.malformed}` : `calls ${call.name}`
    const from = ends.findIndex((end) => end > begin)
    calls.push({ from, to: ends.findIndex((end) => end >= at) + 1, said })
  }
  return calls
}
