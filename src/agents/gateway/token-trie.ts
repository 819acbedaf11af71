/**
 * Sequences of token ids, of which what several begin with is held once. A place in it is a sequence from the beginning: calls hold
 * places, and no ids.
 */

/** Ids that follow those of `parent`. Places stay as they are when more is added. */
export interface Place {
  /** Ids from the beginning up to the end of this place. */
  readonly length: number
  /** Null for the beginning. */
  readonly parent: Place | null
  readonly ids: Int32Array
}

interface Node extends Place {
  parent: Node | null
  ids: Int32Array
  /** The first that went on from here, and others by their first ids: most places have one. */
  first: Node | null
  others: Map<number, Node> | null
}

/** Sequences that share beginnings. */
export class TokenTrie {
  readonly #root: Node = { length: 0, parent: null, ids: new Int32Array(), first: null, others: null }
  /** Ids that are held. */
  #numIds = 0

  get root(): Place {
    return this.#root
  }

  get numIds(): number {
    return this.#numIds
  }

  /**
   * The place behind `from` by the ids of `ids` from index `first` on, made where it is not there. `passed` is called with each place
   * between the two that was made before, the last one too.
   */
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

  /** All ids up to a place. */
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

  /** Makes a place of the first `length` ids of a node, which goes on behind them. */
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

/** The place behind a node that goes on with an id; null where there is none. */
function childOf({ first, others }: Node, id: number): Node | null {
  return first?.ids[0] === id ? first : (others?.get(id) ?? null)
}

/** The last id up to a place; undefined at the beginning. */
export function lastId({ ids }: Place): number | undefined {
  return ids.at(-1)
}
