/**
 * A grammar as an automaton over bytes. Each rule is a small automaton that may call others, so a position in a text is
 * a set of states, each with a stack of the states to return to. Equal positions are one object, and the successor of a
 * position by a byte is computed once, then looked up.
 */
import { InputError } from '../../base/errors.ts'
import type { Expression } from './gbnf.ts'
import { utf8Sequences } from './ranges.ts'

/** A state of a rule's automaton. */
interface Node {
  /** A byte from `low` to `high` leads to state `to`. */
  readonly bytes: { readonly low: number; readonly high: number; readonly to: number }[]
  /** A call of `rule`, which returns to state `to`. */
  readonly calls: { readonly rule: string; readonly to: number }[]
  /** States reached without a byte. */
  readonly next: number[]
  /** Whether the rule may end here. */
  isEnd: boolean
}

/** The states to return to, the innermost call first. Equal stacks are one object. */
interface Stack {
  readonly number: number
  readonly to: number
  readonly below: Stack | null
}

/** A position in a text. */
export interface Position {
  /** Whether the text may end here. */
  readonly isEnd: boolean
  /** The tokens allowed here, set by the vocabulary; null at first. */
  mask: Int32Array | null
  readonly items: readonly (readonly [node: number, stack: Stack | null])[]
  /** The states that were visited to compute it: the same whatever is cached. */
  readonly cost: number
  /** The last walk over the vocabulary that came here. */
  walk: number
  /** The successor by each byte: null if the byte is not allowed, undefined if it has not been computed. */
  readonly next: (Position | null | undefined)[]
}

/** Limits: states of a grammar, steps to build it, states of one position, and the size of the positions kept. */
const [NODES_MAX, STEPS_MAX, ITEMS_MAX, KEPT_SIZE_MAX] = [200_000, 2_000_000, 10_000, 2_000_000]
/** The sizes of a state and of a position, in states of a position. */
const [NODE_SIZE, POSITION_SIZE] = [4, 40]

export class Automaton {
  readonly #nodes: Node[] = []
  readonly #starts = new Map<string, number>()
  #positions = new Map<string, Position>()
  #keptSize = 0
  #steps = 0
  #stacks = new Map<string, Stack>()
  #numStacks = 0
  #start: Position | null = null

  /** @throws InputError if the grammar is too large or a rule begins with itself. */
  constructor(rules: ReadonlyMap<string, Expression>) {
    for (const name of rules.keys()) this.#starts.set(name, this.#add())
    for (const [name, expression] of rules) {
      this.#nodes[this.#write(expression, this.#starts.get(name)!)]!.isEnd = true
    }
    this.#checkBeginnings(rules)
  }

  /** How much memory it takes, in units of about 64 bytes. */
  get size(): number {
    return this.#nodes.length * NODE_SIZE + this.#keptSize
  }

  /** The position at the start of a text. */
  get start(): Position {
    this.#start ??= this.#position([[this.#starts.get('root')!, null]])
    return this.#start!
  }

  /** The position after a byte; null if the byte is not allowed. */
  after(position: Position, byte: number): Position | null {
    const known = position.next[byte]
    if (known !== undefined) return known
    const items: (readonly [number, Stack | null])[] = []
    for (const [node, stack] of position.items) {
      for (const { low, high, to } of this.#nodes[node]!.bytes) if (byte >= low && byte <= high) items.push([to, stack])
    }
    const next = items.length === 0 ? null : this.#position(items)
    position.next[byte] = next
    return next
  }

  #step(): void {
    if (++this.#steps <= STEPS_MAX) return
    throw new InputError('grammar', `more than ${STEPS_MAX} steps to build it`, 'fewer repetitions and rules')
  }

  #add(): number {
    if (this.#nodes.length === NODES_MAX) {
      throw new InputError('grammar', `more than ${NODES_MAX} places`, 'fewer alternatives and repetitions')
    }
    return this.#nodes.push({ bytes: [], calls: [], next: [], isEnd: false }) - 1
  }

  /** Adds the states of an expression that starts at state `from`. Returns the state where it ends. */
  #write(expression: Expression, from: number): number {
    this.#step() // Also repetitions of nothing, which add no states, must end.
    if (expression.kind === 'sequence') return expression.parts.reduce((at, part) => this.#write(part, at), from)
    const to = this.#add()
    if (expression.kind === 'either') {
      for (const part of expression.parts) this.#nodes[this.#write(part, from)]!.next.push(to)
    } else if (expression.kind === 'rule') this.#nodes[from]!.calls.push({ rule: expression.name, to })
    else if (expression.kind === 'class') {
      for (const sequence of utf8Sequences(expression.ranges)) {
        let at = from
        for (const [i, [low, high]] of sequence.entries()) {
          const next = i === sequence.length - 1 ? to : this.#add()
          this.#nodes[at]!.bytes.push({ low, high, to: next })
          at = next
        }
      }
    } else if (expression.kind === 'repeat') {
      const { part, min, max } = expression
      let at = from
      for (let i = 0; i < min; i++) at = this.#write(part, at)
      if (max === null) {
        const loop = this.#add()
        this.#nodes[at]!.next.push(loop)
        this.#nodes[this.#write(part, loop)]!.next.push(loop)
        at = loop
      }
      this.#nodes[at]!.next.push(to)
      for (let i = min; max !== null && i < max; i++) {
        at = this.#write(part, at)
        this.#nodes[at]!.next.push(to)
      }
    }
    return to
  }

  /** Throws if a rule begins with itself: the calls would never reach a byte. */
  #checkBeginnings(rules: ReadonlyMap<string, Expression>): void {
    const empty = new Set<string>()
    for (let before = -1; before < empty.size; ) {
      before = empty.size
      for (const name of rules.keys()) if (this.#reach(name, empty).isEnd) empty.add(name)
    }
    const state = new Map<string, 'open' | 'done'>()
    const visit = (name: string): void => {
      if (state.get(name) === 'done') return
      if (state.get(name) === 'open') {
        throw new InputError('grammar', `rule ${name}, which begins with itself`, 'rules that begin with a character')
      }
      state.set(name, 'open')
      for (const rule of this.#reach(name, empty).rules) visit(rule)
      state.set(name, 'done')
    }
    for (const name of rules.keys()) visit(name)
  }

  /** The rules that may be called before the first byte of a rule, and whether the rule may be empty. */
  #reach(name: string, empty: ReadonlySet<string>): { readonly rules: Set<string>; readonly isEnd: boolean } {
    const rules = new Set<string>()
    const seen = new Set<number>()
    let isEnd = false
    const waiting = [this.#starts.get(name)!]
    while (waiting.length > 0) {
      const at = waiting.pop()!
      if (seen.has(at)) continue
      seen.add(at)
      this.#step()
      const node = this.#nodes[at]!
      isEnd ||= node.isEnd
      for (const to of node.next) waiting.push(to)
      for (const { rule, to } of node.calls) {
        rules.add(rule)
        if (empty.has(rule)) waiting.push(to)
      }
    }
    return { rules, isEnd }
  }

  /** The position of these states and all that they reach without a byte. */
  #position(items: readonly (readonly [node: number, stack: Stack | null])[]): Position {
    const from = keyOf(items)
    const known = this.#positions.get(from)
    if (known !== undefined) return known
    const seen = new Map<number, Set<number>>()
    const kept: (readonly [number, Stack | null])[] = []
    const waiting = [...items]
    let isEnd = false
    let count = 0
    while (waiting.length > 0) {
      const [at, stack] = waiting.pop()!
      const stacks = seen.get(at) ?? new Set<number>()
      seen.set(at, stacks)
      const number = stack?.number ?? -1
      if (stacks.has(number)) continue
      stacks.add(number)
      if (++count > ITEMS_MAX)
        throw new InputError('grammar', `more than ${ITEMS_MAX} readings of one text`, 'a less ambiguous grammar')
      const node = this.#nodes[at]!
      if (node.bytes.length > 0) kept.push([at, stack])
      for (const to of node.next) waiting.push([to, stack])
      for (const { rule, to } of node.calls) {
        // A call at the end of a rule returns straight to that rule's caller, so the stack does not grow if the rule
        // calls itself there.
        waiting.push([this.#starts.get(rule)!, this.#isLast(to) ? stack : this.#stack(to, stack)])
      }
      if (!node.isEnd) continue
      if (stack === null) isEnd = true
      else waiting.push([stack.to, stack.below])
    }
    const key = `${isEnd} ${count} ${keyOf(kept)}`
    const position = this.#positions.get(key) ?? {
      ...{ isEnd, mask: null, items: kept, cost: count, walk: 0, next: new Array(256) },
    }
    this.keep(POSITION_SIZE + 2 * (items.length + kept.length))
    this.#positions.set(key, position)
    this.#positions.set(from, position)
    return position
  }

  /** Whether a state leads only to the end of its rule. */
  #isLast(at: number): boolean {
    const { bytes, calls, next, isEnd } = this.#nodes[at]!
    if (bytes.length + calls.length > 0 || next.length > 1) return false
    return next.length === 0 ? isEnd : next[0] !== at && !isEnd && this.#isLast(next[0]!)
  }

  #stack(to: number, below: Stack | null): Stack {
    const key = `${to} ${below?.number ?? -1}`
    let stack = this.#stacks.get(key)
    if (stack === undefined) {
      stack = { number: this.#numStacks++, to, below }
      this.#stacks.set(key, stack)
    }
    return stack
  }

  /** Counts what the positions keep, and drops them if that is too much. */
  keep(size: number): void {
    if (this.#keptSize + size > KEPT_SIZE_MAX) this.#forget()
    this.#keptSize += size
  }

  /** Drops the cached positions. Texts in progress keep the ones they use. */
  #forget(): void {
    this.#positions = new Map()
    this.#stacks = new Map()
    this.#start = null
    this.#keptSize = 0
  }
}

function keyOf(items: readonly (readonly [node: number, stack: Stack | null])[]): string {
  return items
    .map(([node, stack]) => `${node}:${stack?.number ?? -1}`)
    .sort()
    .join()
}
