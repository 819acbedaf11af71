/**
 * Reads a Jinja template, and runs it, within bounds. A template comes with a model, from whoever made it, and is run in the
 * caller's thread, so it may neither run on nor fill the memory: `range(10**9)`, loops in loops, texts that double. What it
 * does is counted and not timed, so a template that renders on one machine does so on each, under any load.
 *
 * The library evaluates every node through one method, which is overridden here. Two things are held: how large a value
 * may be (`size`, in characters as it would be written), and how much is done in all (`work`, some nanoseconds a unit).
 * Each operation works on what nodes below it gave, so its work is in proportion to their sizes; the few that multiply
 * (`replace`, `join`, `indent`, `tojson` with an indent) are stopped before they begin.
 *
 * Reading one takes a time in proportion to its length, but for a run of blanks, through which the library goes as often
 * as it is long; so a run has a bound too. Its parser and whoever goes through what it made call themselves for what is
 * within something else, so that has one as well.
 */
// This file is itself loaded when a template is. No `await` stands outside a function: a bundle in CommonJS cannot have one.
import * as jinja from '@huggingface/jinja'

/** A value of the library's: what is in it, and the name of its kind. */
interface Value {
  readonly type: string
  readonly value: unknown
}

/** A node of a parsed template, with the fields that are looked at here. */
interface Node {
  readonly type: string
  readonly value?: unknown
  readonly property?: Node
  readonly computed?: boolean
  readonly callee?: Node
  readonly filter?: Node
}

interface Scope {
  set(name: string, value: unknown): void
}

interface Interpreter {
  evaluate(node: Node | undefined, scope: Scope): Value
  run(program: object): Value
}

// The package's declarations lead nowhere in modules of Node.
const { Template, Environment, Interpreter } = jinja as unknown as {
  readonly Template: new (source: string) => { readonly parsed: Node }
  readonly Environment: new () => Scope
  readonly Interpreter: new (scope: Scope) => Interpreter
}

/** Characters of a template, at most; those that models come with have some 10,000. */
const MAX_SOURCE = 500_000
/** Blanks and line ends in a row. */
const MAX_BLANKS = 1000
/** Statements and expressions of a template; those that models come with have some 2,000. */
const MAX_NODES = 50_000
/** Characters of a value: of a text, or of all that a list or an object holds. */
const MAX_SIZE = 2 ** 22
/** What an operation that multiplies may make: the product of the sizes of what it is given. */
const MAX_PRODUCT = 2 ** 26
/** Units of work of one rendering. */
const MAX_WORK = 2 ** 30
/** Statements and expressions in one another. */
const MAX_DEPTH = 400
/** Lists and objects in one another. */
const MAX_NESTING = 64

/** What a node costs. */
const NODE_WORK = 400
/** What a name that nobody has set costs: the library looks for it by throwing. */
const UNKNOWN_WORK = 5000
/** What a turn of a loop costs, besides what its body does. */
const TURN_WORK = 3000
/** What a call costs, besides what is called: a macro has a scope of its own. */
const CALL_WORK = 5000
/** What a character costs in an operation of the library's, which may look at it several times. */
const CHARACTER_WORK = 16
/** What an entry of a list or an object counts in its size, besides what it holds. */
const ENTRY_SIZE = 64

/** Filters that look at no more than a list's length or its ends. */
const SHALLOW = ['length', 'count', 'first', 'last', 'list', 'safe', 'default', 'd']
/** Filters and methods whose result may be as long as the product of what they are given. */
const MULTIPLYING = ['replace', 'join', 'indent', 'tojson']

/** The name of a filter, with arguments or without. */
function filterName({ filter }: Node): string {
  const name = filter?.callee ?? filter
  return String(name?.value)
}

/** How large a value is, and how many lists and objects in one another it is made of. */
interface Measure {
  readonly size: number
  readonly depth: number
}
const SCALAR: Measure = { size: 8, depth: 0 }

class BoundedInterpreter extends Interpreter {
  #workLeft: number
  #depth = 0
  /** Of the node that is being evaluated: the sizes of what the nodes below it gave, added and multiplied. */
  #sum = 0
  #product = 1
  #isMultiplying = false
  /** Whether the next value is what a loop goes through. */
  #isLoop = false
  /** Sizes and depths of lists and objects, which do not change; and of what a method belongs to. */
  readonly #sizes = new WeakMap<object, Measure>()
  readonly #methods = new WeakMap<object, { size: number; isMultiplying: boolean }>()
  readonly #nodeCounts = new WeakMap<object, number>()

  constructor(scope: Scope, maxWork: number) {
    super(scope)
    this.#workLeft = maxWork
  }

  override evaluate(node: Node | undefined, scope: Scope): Value {
    if (node === undefined) return super.evaluate(node, scope)
    const [sum, product, isMultiplying, isLoop] = [this.#sum, this.#product, this.#isMultiplying, this.#isLoop]
    this.#sum = 0
    this.#product = 1
    this.#isMultiplying = isMultiplyingNode(node)
    this.#isLoop = node.type === 'For'
    if (++this.#depth > MAX_DEPTH) throw new Error(`it is nested more than ${MAX_DEPTH} deep`)
    this.#spend(
      NODE_WORK + (node.type === 'Macro' || node.type === 'CallStatement' ? NODE_WORK * this.#nodesOf(node) : 0),
    )
    let value: Value
    let size: number
    try {
      value = super.evaluate(node, scope)
      size = this.#sizeOf(value)
      this.#spendFor(node, value, size)
    } finally {
      this.#depth--
      this.#sum = sum
      this.#product = product
      this.#isMultiplying = isMultiplying
      this.#isLoop = isLoop
    }
    this.#take(value, size)
    return value
  }

  #spend(units: number): void {
    this.#workLeft -= units
    if (this.#workLeft < 0) throw new Error('it takes too many units of work')
  }

  /** Adds what a node gave to what the node above it works on. */
  #take(value: Value, size: number): void {
    if (this.#isLoop) this.#spend(TURN_WORK * (entriesOf(value)?.size ?? 0))
    this.#isLoop = false
    const method = this.#methods.get(value)
    this.#sum += method?.size ?? size
    const number = value.type === 'IntegerValue' ? Math.abs(value.value as number) : 0
    this.#product *= 1 + Math.max(method?.size ?? size, number)
    if ((this.#isMultiplying || method?.isMultiplying === true) && this.#product > MAX_PRODUCT) {
      throw new Error(`an operation may make more than ${MAX_PRODUCT} characters`)
    }
  }

  /** The work of an operation on what nodes below it gave. */
  #spendFor(node: Node, value: Value, size: number): void {
    switch (node.type) {
      case 'Identifier':
        if (value.type === 'UndefinedValue') this.#spend(UNKNOWN_WORK)
        return
      case 'MemberExpression':
        if (value.type === 'FunctionValue') {
          const isMultiplying = node.computed === true || node.property?.value === 'replace'
          this.#methods.set(value, { size: this.#sum, isMultiplying })
        } else if (node.property?.type === 'SliceExpression') {
          const entries = Array.isArray(value.value) ? value.value.length : size
          this.#spend(CHARACTER_WORK * entries + (value.type === 'StringValue' ? CHARACTER_WORK * this.#sum : 0))
        }
        return
      case 'FilterExpression':
      case 'FilterStatement':
        if (SHALLOW.includes(filterName(node))) return
        this.#spend(CHARACTER_WORK * (this.#sum + size) * (/sort/.test(filterName(node)) ? 32 : 1))
        return
      case 'CallExpression':
        this.#spend(CALL_WORK + CHARACTER_WORK * size)
        return
      case 'BinaryExpression':
      case 'TestExpression':
        this.#spend(this.#sum + size)
        return
      default:
        this.#spend(size)
    }
  }

  /** The size of a value; an error where it is too large, before anything is done with it. */
  #sizeOf(value: Value): number {
    const { size } = this.#measure(value)
    if (size > MAX_SIZE) throw new Error(`a value has more than ${MAX_SIZE} characters`)
    return size
  }

  #measure(value: Value, outside = 0): Measure {
    if (value.type === 'StringValue') return { size: (value.value as string).length, depth: 0 }
    const entries = entriesOf(value)
    if (entries === null) return SCALAR
    const known = this.#sizes.get(value)
    if (known !== undefined) return known
    this.#spend(entries.size)
    let [size, depth] = [2, 0]
    let isFixed = value.type !== 'NamespaceValue'
    for (const entry of entries.values()) {
      // What holds itself has no end: it is found by how deep one came.
      const inside = outside < MAX_NESTING ? this.#measure(entry, outside + 1) : { size: 0, depth: MAX_NESTING }
      size += ENTRY_SIZE + inside.size
      depth = Math.max(depth, inside.depth + 1)
      if (depth > MAX_NESTING) throw new Error(`lists and objects are nested more than ${MAX_NESTING} deep`)
      if (size > MAX_SIZE) break
      isFixed &&= entriesOf(entry) === null || this.#sizes.has(entry)
    }
    const measure = { size, depth }
    if (isFixed) this.#sizes.set(value, measure)
    return measure
  }

  /** Nodes of a macro: all are looked at where it is defined. */
  #nodesOf(node: object): number {
    const known = this.#nodeCounts.get(node)
    if (known !== undefined) return known
    let count = 1
    for (const field of Object.values(node)) {
      for (const child of Array.isArray(field) ? field : [field]) {
        if (typeof child === 'object' && child !== null) count += this.#nodesOf(child)
      }
    }
    this.#nodeCounts.set(node, count)
    return count
  }
}

function isMultiplyingNode(node: Node): boolean {
  const isFilter = node.type === 'FilterExpression' || node.type === 'FilterStatement'
  return isFilter && MULTIPLYING.includes(filterName(node))
}

interface Entries {
  readonly size: number
  values(): Iterable<Value>
}

/** What a list or an object holds; null for everything else. */
function entriesOf(value: Value): Entries | null {
  const inside = value.value
  if (inside instanceof Map) return inside as Map<string, Value>
  if (!Array.isArray(inside)) return null
  return { size: inside.length, values: () => inside as Value[] }
}

/** As many numbers as Python's range gives; an error where they are more than a value may hold. */
function rangeOf(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop]
  if (step === 0) throw new Error('range() step must not be zero')
  const count = Math.max(0, Math.ceil((to - from) / step))
  if (!(count * (ENTRY_SIZE + SCALAR.size) <= MAX_SIZE)) throw new Error(`range() of ${count} numbers is too long`)
  return Array.from({ length: count }, (_, i) => from + i * step)
}

/**
 * The statements of a template.
 * @throws Error with what is wrong in it, or with the bound that it goes beyond.
 */
export function parseBounded(source: string): object {
  if (source.length > MAX_SOURCE)
    throw new Error(`it has ${source.length} characters, and at most ${MAX_SOURCE} are read`)
  const blanks = longestBlanks(source)
  if (blanks > MAX_BLANKS) throw new Error(`it has ${blanks} blanks in a row, and at most ${MAX_BLANKS} are read`)
  const parsed = parse(source)
  const nodes = countNodes(parsed, 0, 0)
  if (nodes > MAX_NODES) throw new Error(`it has more than ${MAX_NODES} statements and expressions`)
  return parsed
}

function parse(source: string): Node {
  try {
    return new Template(source).parsed
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause
    throw new Error('it is nested too deep to be read', { cause }) // The parser's calls have filled the stack.
  }
}

function longestBlanks(source: string): number {
  let longest = 0
  for (const [blanks] of source.matchAll(/\s+/g)) longest = Math.max(longest, blanks.length)
  return longest
}

/** `count`, and the nodes in this part of a template; counting ends where there are too many. */
function countNodes(part: unknown, depth: number, count: number): number {
  if (typeof part !== 'object' || part === null || count > MAX_NODES) return count
  const isNode = !Array.isArray(part) && !(part instanceof Map)
  if (isNode && depth > MAX_DEPTH) throw new Error(`it is nested more than ${MAX_DEPTH} deep`)
  let sum = isNode ? count + 1 : count
  const inside = part instanceof Map ? part : Object.values(part)
  for (const child of inside) sum = countNodes(child, isNode ? depth + 1 : depth, sum)
  return sum
}

/**
 * What a template says of these variables. It has no clock (`strftime_now`).
 * @throws Error with the template's reason, or with the bound that it went beyond.
 */
export function renderBounded(
  program: object,
  variables: Readonly<Record<string, unknown>>,
  maxWork = MAX_WORK,
): string {
  const environment = new Environment()
  const globals = {
    ...{ true: true, True: true, false: false, False: false, none: null, None: null },
    range: rangeOf,
    raise_exception: (reason: unknown) => {
      throw new Error(String(reason))
    },
  }
  for (const [name, value] of Object.entries({ ...globals, ...variables })) environment.set(name, value)
  return new BoundedInterpreter(environment, maxWork).run(program).value as string
}
