/** The tree of a session's calls against the plain account of it, which keeps all ids of each call; and how much it holds. */
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { beforeAll, describe, expect, test } from 'vitest'
import { CallTree, type SessionWorth } from '../../../src/agents/gateway/call-tree.ts'
import { TokenTrie } from '../../../src/agents/gateway/token-trie.ts'
import { Random, Stream } from '../../../src/base/random.ts'
import type { Message } from '../../../src/environments/text.ts'
import { loadTokenizer } from '../../../src/language/tokenizers/load-tokenizer.ts'
import type { Tokenizer } from '../../../src/language/tokenizers/tokenizer.ts'
import { TOOL_TEMPLATE } from '../../support/gateway.ts'
import { QWEN3_TEMPLATE, writeQwen3 } from '../../support/qwen3-folder.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { seeded, thorough } from '../../support/tiers.ts'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/** Bytes in use once the garbage is collected. */
function bytesNow(): number {
  for (let i = 0; i < 3; i++) collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

const WORTH: SessionWorth = {
  ...{ source: 's', promptId: 0, group: 0, member: 0, epoch: 0, reward: 1, error: null, components: {} },
}
const tokenizers = new Map<string, Tokenizer>()
beforeAll(async () => {
  for (const [name, template] of Object.entries({ plain: TOOL_TEMPLATE, rewriting: QWEN3_TEMPLATE })) {
    const folder = join(await temporaryFolder(), name)
    await writeQwen3(folder, { context: 400, template })
    tokenizers.set(name, await loadTokenizer(folder))
  }
})

/** Answers of a session, each with all of its ids. */
interface PlainCall {
  readonly asked: readonly number[]
  readonly chosen: readonly number[]
  readonly logprobs: readonly number[]
  readonly parent: PlainCall | null
  readonly number: number
}

const begins = (ids: readonly number[], start: readonly number[]) => start.every((id, i) => ids[i] === id)
const whole = ({ asked, chosen }: PlainCall) => [...asked, ...chosen]

/** The call with the most ids that these begin with, the first of several. */
function parentOf(calls: readonly PlainCall[], asked: readonly number[]): PlainCall | null {
  let parent: PlainCall | null = null
  for (const call of calls) {
    const ids = whole(call)
    const isLonger = parent === null || ids.length > whole(parent).length
    if (isLonger && ids.length <= asked.length && begins(asked, ids)) parent = call
  }
  return parent
}

/** The rows of these calls: ids, masks, log-probabilities and turns. */
function plainRows(calls: readonly PlainCall[]) {
  const trained = new Set<PlainCall>()
  const leaves = calls.filter((call) => !calls.some(({ parent }) => parent === call))
  return leaves.flatMap((leaf) => {
    const path: PlainCall[] = []
    for (let call: PlainCall | null = leaf; call !== null; call = call.parent) path.unshift(call)
    const fresh = path.filter((call) => !trained.has(call) && call.chosen.length > 0)
    if (fresh.length === 0) return []
    for (const call of path) trained.add(call)
    const token = whole(leaf)
    const row = {
      token,
      lossMask: token.map(() => 0),
      logprob: token.map(() => Number.NaN),
      turn: token.map(() => leaf.number),
    }
    let from = 0
    for (const call of path) {
      const { length } = whole(call)
      row.turn.fill(call.number, from, length)
      from = length
      for (const [i, logprob] of call.logprobs.entries()) {
        row.logprob[call.asked.length + i] = logprob
        row.lossMask[call.asked.length + i] = fresh.includes(call) ? 1 : 0
      }
    }
    return [row]
  })
}

/** A session in which an agent goes on, tries again, goes back, changes what was said, and is cut off, by chance. */
function session(tokenizer: Tokenizer, seed: number, numCalls: number) {
  const random = new Random(seed)
  let draws = 0
  const below = (n: number) => {
    random.draw(Stream.reset, seed, draws++, 0)
    return Math.floor(n * random.uniform(0))
  }
  const tree = new CallTree(tokenizer)
  const calls: PlainCall[] = []
  const histories: (readonly Message[])[] = [[{ role: 'user', content: 'a' }]]
  let repeated = 0
  for (let i = 0; i < numCalls; i++) {
    const messages = structuredClone(histories[below(histories.length)]!) as Message[]
    if (below(8) === 0) messages[0] = { role: 'user', content: 'changed' }
    const prompt = tree.promptOf(messages, below(6) === 0 ? { variables: {} } : {})
    const asked = Array.from(prompt.ids)
    const words = tokenizer.encode(['x', 'y z', '<think>\nhm\n</think>\n\nx', ''][below(4)]!)
    const isCut = below(4) === 0
    const chosen = isCut ? words.slice(0, 1) : [...words, tokenizer.endIds[0]!]
    const logprobs = chosen.map((_, k) => Math.fround(-(k + 1) / (i + 2)))
    const tokens = chosen.map((id, k) => ({ id, logprob: logprobs[k]!, version: i, candidates: [], top: [] }))
    const message = { role: 'assistant', content: tokenizer.decode(chosen, { skipSpecial: true }) }
    if (calls.some((call) => call.asked.join() === asked.join())) repeated++
    calls.push({ ...{ asked, chosen, logprobs, number: i }, parent: parentOf(calls, asked) })
    tree.add({ prompt, turn: { tokens, numCached: 0, end: isCut ? 'length' : 'stop', error: null }, message })
    histories.push([...messages, message, { role: 'user', content: ['b', 'c'][below(2)]! }])
  }
  return { tree, calls, repeated }
}

describe('the rows of a session', () => {
  test.each(['plain', 'rewriting'])('are those of the plain account, with a template that is %s', (name) => {
    let [numRows, numForks] = [0, 0]
    for (let seed = 0; seed < 40; seed++) {
      const { tree, calls, repeated } = session(tokenizers.get(name)!, seed, 14)
      const expected = plainRows(calls)
      const rows = tree.rows(WORTH)
      expect(rows.map(({ token, lossMask, logprob, turn }) => ({ token, lossMask, logprob, turn }))).toEqual(expected)
      expect(tree.counts).toMatchObject({ repeated, continued: calls.filter(({ parent }) => parent !== null).length })
      numRows += rows.length
      numForks += calls.filter((call) => calls.filter(({ parent }) => parent === call).length > 1).length
    }
    expect(numRows).toBeGreaterThan(100)
    expect(numForks).toBeGreaterThan(10)
  })
})

describe('what a session holds', () => {
  const words = 'x '.repeat(200)

  /** A session that only goes on; `forks` answers each prompt that often. */
  function long(turns: number, forks = 1) {
    const tokenizer = tokenizers.get('plain')!
    const tree = new CallTree(tokenizer)
    const chosen = [...tokenizer.encode(words), tokenizer.endIds[0]!]
    const tokens = chosen.map((id) => ({ id, logprob: -1, version: 0, candidates: [], top: [] }))
    const messages: Message[] = [{ role: 'user', content: words }]
    let numIds = 0
    for (let turn = 0; turn < turns; turn++) {
      for (let i = 0; i < forks; i++) {
        const prompt = tree.promptOf(structuredClone(messages), {})
        const message = { role: 'assistant', content: words }
        tree.add({ prompt, turn: { tokens, numCached: 0, end: 'stop', error: null }, message })
        numIds = prompt.ids.length + chosen.length
      }
      messages.push({ role: 'assistant', content: words }, { role: 'user', content: words })
    }
    return { tree, numIds }
  }

  test('is each id once, however often the conversation is sent again', () => {
    for (const turns of [5, 10, 20]) {
      const { tree, numIds } = long(turns)
      expect(tree.numIds).toBe(numIds)
      expect(tree.rows(WORTH)).toMatchObject([{ turns }])
    }
    const { tree, numIds } = long(10, 3)
    expect([tree.numIds, tree.counts.repeated]).toEqual([numIds, 20])
  })

  test('is the messages of responses once', () => {
    const { tree } = long(3)
    const messages: Message[] = Array.from({ length: 6 }, (_, i) => ({
      role: i % 2 ? 'assistant' : 'user',
      content: words,
    }))
    const first = tree.shared(messages)
    const again = structuredClone(messages)
    const shared = tree.shared([...again, { role: 'user', content: 'more' }])()
    expect(shared).toEqual([...messages, { role: 'user', content: 'more' }])
    expect(shared.slice(0, 6).filter((message) => again.includes(message))).toEqual([])
    expect(first()).toEqual(messages)
    expect(
      tree
        .shared(again)()
        .every((message, i) => message === messages[i]),
    ).toBe(true)
  })

  /** Sessions that each go on for 100 turns of 800 ids, half of them chosen, and the bytes that they take. */
  function held(sessions: number) {
    const tokenizer = tokenizers.get('plain')!
    const random = seeded(3)
    // Of few words, which the tokenizer remembers.
    const text = () => Array.from({ length: 165 }, () => (350 + Math.floor(900 * random())).toString(36)).join(' ')
    const before = bytesNow()
    const trees: CallTree[] = []
    const ms: number[] = []
    for (let session = 0; session < sessions; session++) {
      const tree = new CallTree(tokenizer)
      let said: Message[] = [{ role: 'user', content: text() }]
      for (let turn = 0; turn < 100; turn++) {
        // As a server receives it: other objects at each call.
        const sent = JSON.parse(JSON.stringify(said)) as Message[]
        const content = text()
        const chosen = [...tokenizer.encode(content), tokenizer.endIds[0]!]
        const tokens = chosen.map((id, i) => ({ id, logprob: -i / 7, version: 0, candidates: [], top: [] }))
        const started = process.cpuUsage()
        const prompt = tree.promptOf(sent, {})
        tree.add({
          prompt,
          turn: { tokens, numCached: 0, end: 'stop', error: null },
          message: { role: 'assistant', content },
        })
        const { user } = process.cpuUsage(started)
        ms[turn] = (ms[turn] ?? 0) + user / 1000 / sessions
        said = [...said, { role: 'assistant', content }, { role: 'user', content: text() }]
      }
      trees.push(tree)
    }
    const bytes = bytesNow() - before
    const idBytes = 4 * trees.reduce((sum, { numIds }) => sum + numIds, 0)
    return { idBytes, ratio: bytes / idBytes, ms }
  }

  const tenth = (ms: readonly number[], from: number) => ms.slice(from, from + 10).toSorted((a, b) => a - b)[5]!

  thorough('of 256 sessions of 100 turns of 800 ids is less than twice the ids', { timeout: 3_600_000 }, () => {
    held(1) // What is made once.
    const { idBytes, ratio, ms } = held(256)
    const [early, middle, late] = [10, 45, 85].map((turn) => tenth(ms, turn))
    const times = [early, middle, late].map((each) => each!.toFixed(2)).join(', ')
    console.info(`256 sessions: ${ratio.toFixed(2)} × ids; a call at turns 15, 50, 90: ${times} ms`)
    expect(idBytes).toBeGreaterThan(256 * 4 * 75_000)
    expect(ratio).toBeLessThan(2)
    expect(late! / early!).toBeLessThan(2)
  })
})

test('a call goes on from the longest conversation that it begins with, behind longer ones', () => {
  const tree = new CallTree(tokenizers.get('plain')!)
  const isContinued = (...texts: string[]) => {
    const messages = texts.map((content, i) => ({ role: i % 2 ? 'assistant' : 'user', content }))
    const before = tree.counts.continued
    const prompt = tree.promptOf(messages, {})
    const tokens = [...Buffer.from('yes')].map((id) => ({ id, logprob: -1, version: 0, candidates: [], top: [] }))
    const message = { role: 'assistant', content: 'yes' }
    tree.add({ prompt, turn: { tokens, numCached: 0, end: 'stop', error: null }, message })
    return tree.counts.continued > before
  }
  expect(isContinued('a')).toBe(false)
  expect(isContinued('a', 'yes', 'b')).toBe(true)
  expect(isContinued('c', 'no', 'd', 'no', 'e')).toBe(false)
  expect(isContinued('a', 'yes', 'b', 'yes', 'c', 'no', 'd')).toBe(true)
  expect(tree.rows(WORTH).map(({ turns }) => turns)).toEqual([1, 3])
})

test('conversations are told apart by where messages end, and down to halves of surrogate pairs', () => {
  const tree = new CallTree(tokenizers.get('plain')!)
  const conversations = [['a', 'b'], ['ab'], ['a1:b'], ['a::user:b'], ['', 'ab'], ['ab', ''], ['a', '', 'b']]
  const halves = ['\u{d800}', '\u{d801}', '\u{fffd}', '"\\ud800"'].map((each) => [each])
  for (const texts of [...conversations, ...halves]) {
    const shared = tree.shared(texts.map((content) => ({ role: 'user', content })))()
    expect(shared.map(({ content }) => content)).toEqual(texts)
  }
})

test('a trie gives back what was added, holds what is shared once, and its places stay', () => {
  const random = new Random(5)
  const trie = new TokenTrie()
  const added = Array.from({ length: 200 }, (_, i) => {
    random.draw(Stream.reset, i, 0, 0)
    const ids = Array.from({ length: 1 + Math.floor(8 * random.uniform(0)) }, (_, k) => {
      random.draw(Stream.reset, i, k + 1, 0)
      return Math.floor(3 * random.uniform(0))
    })
    return { ids, place: trie.add(trie.root, ids, 0) }
  })
  for (const { ids, place } of added) {
    expect(Array.from(trie.idsOf(place))).toEqual(ids)
    expect(trie.add(trie.root, ids, 0)).toBe(place)
  }
  const beginnings = new Set(added.flatMap(({ ids }) => ids.map((_, i) => ids.slice(0, i + 1).join())))
  expect(trie.numIds).toBe(beginnings.size)
})
