/**
 * Finds out from a template's statements whether it renders each message by itself. Then a long conversation can be
 * rendered without its middle, and adding a turn costs the same after 3 messages as after 300. Unknown statements count
 * as not local.
 */

interface Node {
  readonly type: string
  readonly value?: unknown
  readonly object?: unknown
  readonly property?: unknown
  readonly computed?: boolean
  readonly operator?: { readonly value: string }
  readonly left?: unknown
  readonly right?: unknown
  readonly iterable?: unknown
  readonly loopvar?: unknown
  readonly assignee?: unknown
  readonly body?: readonly Node[]
}

/** The loop that `loop` means at a node. */
type Loop = 'none' | 'messages' | 'other'

/** Leading messages that a template may name: `messages[0]` and `messages[1]`. */
export const NUM_NAMED = 2
const NEIGHBORS = ['first', 'last', 'previtem', 'nextitem']

const isNode = (part: unknown, type: string): part is Node => (part as Node | null | undefined)?.type === type
const isNamed = (part: unknown, name: string) => isNode(part, 'Identifier') && part.value === name
/** A field of the loop, like `loop.first`. */
const ofLoop = (part: unknown, names: readonly string[]) =>
  isNode(part, 'MemberExpression') &&
  part.computed === false &&
  isNamed(part.object, 'loop') &&
  names.includes(String((part.property as Node).value))
const isNumber = (part: unknown, ...numbers: readonly number[]) =>
  isNode(part, 'IntegerLiteral') && numbers.includes(part.value as number)

/** True if each message's text depends only on its neighbors, the first two messages, and whether its index is even. */
export function isLocal(program: object): boolean {
  return new Reader().isLocal(program as Node)
}

class Reader {
  #numLoops = 0
  #isLocal = true

  isLocal(program: Node): boolean {
    for (const statement of program.body!) this.#read(statement, 'none')
    return this.#isLocal && this.#numLoops === 1
  }

  #read(part: unknown, loop: Loop): void {
    if (Array.isArray(part) || part instanceof Map) {
      for (const each of part) this.#read(each, loop)
      return
    }
    if (typeof part !== 'object' || part === null) return
    const node = part as Node
    if (this.#isAllowed(node, loop)) return
    if (isNamed(node, 'messages') || (loop === 'messages' && isNamed(node, 'loop')) || isNode(node, 'Break')) {
      this.#isLocal = false
    } else if (isNode(node, 'For')) this.#readLoop(node, loop)
    else if (isNode(node, 'Set')) this.#readSet(node, loop)
    else for (const [name, field] of Object.entries(node)) if (!isLabel(node, name)) this.#read(field, loop)
  }

  /** Whether a node reads only what a local template may read of other messages and the loop. */
  #isAllowed(node: Node, loop: Loop): boolean {
    const { left, right, property } = node
    if (loop === 'messages') {
      if (ofLoop(node, NEIGHBORS)) return true
      const sign = node.operator?.value
      if (sign === '%' && ofLoop(left, ['index', 'index0']) && isNumber(right, 2)) return true
      if (sign === '==' && ofLoop(left, ['index0']) && isNumber(right, 0)) return true
    }
    if (!isNode(node, 'MemberExpression') || node.computed !== true || !isNamed(node.object, 'messages')) return false
    if (isNumber(property, 0, 1)) return true
    const beside = property as Node
    const isBeside = isNode(beside, 'BinaryExpression') && ['+', '-'].includes(beside.operator!.value)
    return loop === 'messages' && isBeside && ofLoop(beside.left, ['index0']) && isNumber(beside.right, 1)
  }

  #readLoop(node: Node, loop: Loop): void {
    const { iterable, body, loopvar } = node
    if (!isNamed(iterable, 'messages')) {
      this.#read(iterable, loop)
      this.#read(body, 'other')
      return
    }
    this.#numLoops++
    // A message must not read what another set: variables must be set before they are read.
    if (loop !== 'none' || !isNode(loopvar, 'Identifier') || !setsBeforeReads(body!, String(loopvar.value))) {
      this.#isLocal = false
    }
    this.#read(body, 'messages')
  }

  #readSet(node: Node, loop: Loop): void {
    const { assignee, value, body } = node
    const name = isNode(assignee, 'Identifier') ? String(assignee.value) : null
    if (name === null || name === 'messages' || name === 'loop') this.#isLocal = false // A namespace keeps its values.
    this.#read(value, loop)
    this.#read(body, loop)
  }
}

/** Whether a node's field is a name but not a variable. */
function isLabel(node: Node, field: string): boolean {
  return (
    (node.type === 'MemberExpression' && field === 'property' && node.computed === false) ||
    (node.type === 'KeywordArgumentExpression' && field === 'key') ||
    (node.type === 'TestExpression' && field === 'test')
  )
}

/** Whether a loop's body sets each of its names, at its top level, before it reads them. */
function setsBeforeReads(body: readonly Node[], loopvar: string): boolean {
  const sets = new Set<string>()
  const findSets = (part: unknown, bound: readonly string[]): void => {
    if (Array.isArray(part) || part instanceof Map) {
      for (const each of part) findSets(each, bound)
      return
    }
    if (typeof part !== 'object' || part === null) return
    const { type, assignee, loopvar: own } = part as Node
    if (type === 'Set' && isNode(assignee, 'Identifier') && !bound.includes(String(assignee.value))) {
      sets.add(String(assignee.value))
    }
    // An inner loop sets its own variable in each turn.
    const inside = type === 'For' && isNode(own, 'Identifier') ? [...bound, String(own.value)] : bound
    for (const field of Object.values(part)) findSets(field, inside)
  }
  findSets(body, [loopvar])
  const isSet = new Set<string>()
  const reads = (part: unknown): boolean => {
    if (Array.isArray(part) || part instanceof Map) return [...part].some(reads)
    if (typeof part !== 'object' || part === null) return false
    const node = part as Node
    if (isNode(node, 'Identifier')) return sets.has(String(node.value)) && !isSet.has(String(node.value))
    return Object.entries(node).some(([name, field]) => {
      return name !== 'assignee' && !isLabel(node, name) && reads(field)
    })
  }
  for (const statement of body) {
    if (reads(statement)) return false
    if (isNode(statement, 'Set') && isNode(statement.assignee, 'Identifier'))
      isSet.add(String(statement.assignee.value))
  }
  return true
}
