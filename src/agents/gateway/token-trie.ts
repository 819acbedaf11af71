/** A trie of token ids, which stores shared prefixes once. A place is a sequence from the root; calls hold places. */

/** A node's ids, after those of `parent`. Places stay valid when more ids are added. */
export interface Place {
  /** Number of ids from the root to the end of this place. */
  readonly length: number
  /** Null for the root. */
  readonly parent: Place | null
  readonly ids: Int32Array
}

interface Node extends Place {
  parent: Node | null
  ids: Int32Array
  /** The first child, and further ones by their first id: most nodes have one. */
  first: Node | null
  others: Map<number, Node> | null
}

export class TokenTrie {
  readonly #root: Node = { length: 0, parent: null, ids: new Int32Array(), first: null, others: null }
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
      let length = 1
      while (length < child.ids.length && at + length < ids.length && child.ids[length] === ids[at + length]) length++
      node = length < child.ids.length ? this.#split(child, length) : child
      at += length
      passed(node)
    }
    return node
  }

  idsOf(place: Place): Int32Array {
    const ids = new Int32Array(place.length)
    for (let each: Place | null = place; each !== null; each = each.parent)
      ids.set(each.ids, each.length - each.ids.length)
    return ids
  }

  #append(node: Node, ids: ArrayLike<number>, first: number): Node {
    const own = Int32Array.from({ length: ids.length - first }, (_, i) => ids[first + i]!)
    const added: Node = { length: node.length + own.length, parent: node, ids: own, first: null, others: null }
    if (node.first === null) node.first = added
    else {
      node.others ??= new Map()
      node.others.set(own[0]!, added)
    }
    this.#numIds += own.length
    return added
  }

  /** Splits a node after its first `length` ids; the rest becomes its child. */
  #split(node: Node, length: number): Node {
    const parent = node.parent!
    const start = node.ids.subarray(0, length)
    const upper: Node = { length: parent.length + length, parent, ids: start, first: node, others: null }
    if (parent.first === node) parent.first = upper
    else parent.others!.set(start[0]!, upper)
    node.ids = node.ids.subarray(length)
    node.parent = upper
    return upper
  }
}

/** The child whose ids begin with an id; null without one. */
function childOf({ first, others }: Node, id: number): Node | null {
  return first?.ids[0] === id ? first : (others?.get(id) ?? null)
}

export function lastId({ ids }: Place): number | undefined {
  return ids.at(-1)
}
