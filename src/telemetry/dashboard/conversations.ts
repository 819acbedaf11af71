/** The conversations of a run for the page: one group at a time, side by side, with the text and values of each token. */
import { readToolCalls } from '../../environments/tools/tool-calls.ts'
import type { ArrowTable } from '../../tables/read-arrow.ts'

/** Maximum shown conversations of a group, and shown tokens of a conversation. */
const [MEMBERS_MAX, TOKENS_MAX] = [32, 2000]
/** Significant digits of shown numbers. */
const DIGITS = 4
/** Fields that are equal in all conversations of a group. */
const GROUP = ['source', 'epoch', 'group', 'promptId'] as const
const NEEDED = [...GROUP, 'member', 'prompt', 'reward', 'advantage', 'stopReason', 'error'] as const
const LISTS = ['tokens', 'lossMask', 'versions', 'logprobs', 'turn'] as const
const COMPONENT = 'reward/'

/** A tool call in the model's text: its token range within the block, and its contents. */
export interface ShownCall {
  readonly from: number
  readonly to: number
  readonly said: string
}

/** Consecutive tokens of one turn, all from the model or all input. */
export interface TokenBlock {
  readonly turn: number
  readonly isOfModel: boolean
  readonly texts: readonly string[]
  /** In nats; null if not recorded. */
  readonly logprobs: readonly (number | null)[]
  /** 1 for trained tokens. */
  readonly lossMask: readonly number[]
  readonly calls: readonly ShownCall[]
}

export interface ShownConversation {
  readonly member: number
  readonly segment: number
  readonly reward: number | null
  /** Components of the reward, by name. */
  readonly components: Readonly<Record<string, number | null>>
  readonly advantage: number | null
  readonly stopReason: string
  readonly error: string | null
  readonly blocks: readonly TokenBlock[]
  readonly numTokens: number
  /** The text after the prompt, for files without token texts; null if unknown. */
  readonly completion: string | null
}

export interface ShownGroup {
  /** Its index among the groups of the file, from 0, and their number. */
  readonly place: number
  readonly numGroups: number
  readonly source: string
  readonly epoch: number
  readonly group: number
  readonly promptId: number
  readonly answer: string | null
  readonly numConversations: number
  readonly conversations: readonly ShownConversation[]
}

/** A group of a table of conversations; null if there is none with this index. @throws Error for another table. */
export function groupOf(table: ArrowTable, place: number): ShownGroup | null {
  const column = (name: string) => {
    const found = table.getChild(name)
    if (found === null) throw new Error(`columns: got no ${name}, expected a table of conversations`)
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

/** The tool calls in a turn, in the known formats. */
function callsIn(texts: readonly string[]): ShownCall[] {
  const raw = texts.join('')
  const pieces = readToolCalls(raw)
  const ends: number[] = []
  for (const text of texts) ends.push((ends.at(-1) ?? 0) + text.length)
  // Calls in a JSON list have no text of their own: they are placed at the end.
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
