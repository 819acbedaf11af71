/** A trie of token ids, which stores shared prefixes once. A place is a sequence from the root; calls hold places. */
import { Pieces } from './pieces.ts'

/** A node's ids, after those of `parent`: `chunk` from `begin` on. Places stay valid when more ids are added. */
export interface Place {
  /** Number of ids from the root to the end of this place. */
  readonly length: number
  /** Null for the root. */
  readonly parent: Place | null
  readonly chunk: Int32Array
  readonly begin: number
}

interface Node extends Place {
  parent: Node | null
  begin: number
  /** The first child, and further ones by their first id: most nodes have one. */
  first: Node | null
  others: Map<number, Node> | null
}

export class TokenTrie {
  readonly #root: Node = { length: 0, parent: null, chunk: new Int32Array(), begin: 0, first: null, others: null }
  readonly #pieces = new Pieces((length) => new Int32Array(length))
  #numIds = 0

  get root(): Place {
    return this.#root
  }

  get numIds(): number {
    return this.#numIds
  }

  /** Adds `ids` from index `first` after `from`, and returns their place. Calls `passed` for each existing place. */
  add(from: Place, ids: ArrayLike<number>, first: number, passed: (place: Place) => void = () => {}): Place {
    let node = from as Node
    for (let at = first; at < ids.length; ) {
      const child = childOf(node, ids[at]!)
      if (child === null) return this.#append(node, ids, at)
      const { chunk, begin } = child
      const own = numOwn(child)
      let length = 1
      while (length < own && at + length < ids.length && chunk[begin + length] === ids[at + length]) length++
      node = length < own ? this.#split(child, length) : child
      at += length
      passed(node)
    }
    return node
  }

  /** The ids up to a place, and zeros for `more` behind them. */
  idsOf(place: Place, more = 0): Int32Array {
    const ids = new Int32Array(place.length + more)
    for (let each: Place | null = place; each !== null; each = each.parent) {
      const own = numOwn(each)
      ids.set(each.chunk.subarray(each.begin, each.begin + own), each.length - own)
    }
    return ids
  }

  #append(node: Node, ids: ArrayLike<number>, first: number): Node {
    const own = ids.length - first
    const { chunk, begin } = this.#pieces.take(own)
    for (let i = 0; i < own; i++) chunk[begin + i] = ids[first + i]!
    const added: Node = { length: node.length + own, parent: node, chunk, begin, first: null, others: null }
    if (node.first === null) node.first = added
    else {
      node.others ??= new Map()
      node.others.set(chunk[begin]!, added)
    }
    this.#numIds += own
    return added
  }

  /** Splits a node after its first `length` ids; the rest becomes its child. */
  #split(node: Node, length: number): Node {
    const parent = node.parent!
    const { chunk, begin } = node
    const upper: Node = { length: parent.length + length, parent, chunk, begin, first: node, others: null }
    if (parent.first === node) parent.first = upper
    else parent.others!.set(chunk[begin]!, upper)
    node.begin = begin + length
    node.parent = upper
    return upper
  }
}

/** The child whose ids begin with an id; null without one. */
function childOf({ first, others }: Node, id: number): Node | null {
  return first !== null && first.chunk[first.begin] === id ? first : (others?.get(id) ?? null)
}

/** Number of a node's own ids. */
function numOwn({ length, parent }: Place): number {
  return length - (parent?.length ?? 0)
}

export function lastId(place: Place): number | undefined {
  return place.chunk[place.begin + numOwn(place) - 1]
}
