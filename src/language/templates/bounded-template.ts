/**
 * Parses and runs Jinja templates within limits. A template comes with a model from the internet and runs in the
 * caller's thread, so it must neither run forever nor fill the memory: `range(10**9)`, nested loops, texts that double.
 * The limits count operations and not time, so a template that renders on one machine renders on all, under any load.
 *
 * The library evaluates all nodes by one method, which is overridden here. There are two limits: the size of a value
 * (`size`, in characters as if written) and the total work (`work`, in units of some nanoseconds). An operation's work
 * is proportional to the sizes of its inputs. The few operations that multiply (`replace`, `join`, `indent`, `tojson`
 * with an indent) are checked before they run.
 *
 * Parsing takes linear time, except for a run of blanks, which the library scans quadratically; so runs are limited.
 * The parser and everything that walks its result are recursive, so the depth is limited too.
 */
// Loaded only when a template is. No top-level `await`: a CommonJS bundle cannot have one.
import * as jinja from '@huggingface/jinja'

/** A value of the library: its content and its kind's name. */
interface Value {
  readonly type: string
  readonly value: unknown
}

/** A node of a parsed template, with the fields that this file reads. */
interface Node {
  readonly type: string
  readonly value?: unknown
  readonly property?: Node
  readonly computed?: boolean
  readonly callee?: Node
  readonly filter?: Node
  readonly object?: Node
  readonly operand?: Node
  readonly args?: readonly Node[]
}

interface Scope {
  set(name: string, value: unknown): void
}

interface Interpreter {
  evaluate(node: Node | undefined, scope: Scope): Value
  run(program: object): Value
}

// The package's type declarations do not resolve in Node's modules.
const { Template, Environment, Interpreter } = jinja as unknown as {
  readonly Template: new (source: string) => { readonly parsed: Node }
  readonly Environment: new () => Scope
  readonly Interpreter: new (scope: Scope) => Interpreter
}

/** Characters of a template, at most. Templates of known models have some 10,000. */
const MAX_SOURCE = 500_000
/** Consecutive blanks and line ends, at most. */
const MAX_BLANKS = 1000
/** Statements and expressions of a template, at most. Templates of known models have some 2,000. */
const MAX_NODES = 50_000
/** Characters of a value, at most: of a text, or of everything in a list or an object. */
const MAX_SIZE = 2 ** 22
/** Characters that a multiplying operation may make: the product of its inputs' sizes. */
const MAX_PRODUCT = 2 ** 26
/** Units of work per rendering. */
const MAX_WORK = 2 ** 30
/** Nesting depth of statements and expressions. */
const MAX_DEPTH = 400
/** Nesting depth of lists and objects. */
const MAX_NESTING = 64

const NODE_WORK = 400
/** The work of an unknown name: the library looks it up by throwing. */
const UNKNOWN_WORK = 5000
/** The work of a loop's turn, besides its body. */
const TURN_WORK = 3000
/** The work of a call, besides the called code: a macro has its own scope. */
const CALL_WORK = 5000
/** The work per character of a library operation, which may read it several times. */
const CHARACTER_WORK = 16
/** The size of a list's or object's entry, besides its content. */
const ENTRY_SIZE = 64

/** Filters that read only a list's length or ends. */
const SHALLOW = ['length', 'count', 'first', 'last', 'list', 'safe', 'default', 'd']
/** Filters and methods whose result can be as long as the product of their inputs. */
const MULTIPLYING = ['replace', 'join', 'indent', 'tojson']

function filterName({ filter }: Node): string {
  const name = filter?.callee ?? filter
  return String(name?.value)
}

interface Measure {
  readonly size: number
  readonly depth: number
}
const SCALAR: Measure = { size: 8, depth: 0 }

class BoundedInterpreter extends Interpreter {
  #workLeft: number
  #depth = 0
  /** Sum and product of the input sizes of the current node. */
  #sum = 0
  #product = 1
  #isMultiplying = false
  /** Whether the next value is a loop's iterable. */
  #isLoop = false
  /** Sizes and depths of lists and objects, which never change, and of method receivers. */
  readonly #sizes = new WeakMap<object, Measure>()
  readonly #methods = new WeakMap<object, { size: number; isMultiplying: boolean }>()
  readonly #nodeCounts = new WeakMap<object, number>()

  constructor(scope: Scope, maxWork: number) {
    super(scope)
    this.#workLeft = maxWork
  }

  override evaluate(node: Node | undefined, scope: Scope): Value {
    if (node === undefined) return super.evaluate(node, scope)
    if (node.type === 'Held') return node.value as Value
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
      value = this.#asPython(node, scope) ?? super.evaluate(node, scope)
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

  /** What the library does otherwise than Python: `strip` of given characters, white space that is not JavaScript's, and none as text. */
  #asPython(node: Node, scope: Scope): Value | null {
    const text = (value: string) => super.evaluate({ type: 'StringLiteral', value }, scope)
    // An operand is evaluated once, also where the library does the rest.
    const hold = (value: Value): Node => ({ type: 'Held', value })
    if (node.type === 'CallExpression' && node.callee?.type === 'MemberExpression' && node.callee.computed !== true) {
      const ends = STRIPPED[String(node.callee.property?.value)]
      const { args = [], callee } = node
      if (ends === undefined || args.length > 1) return null
      const object = this.evaluate(callee.object, scope)
      if (object.type !== 'StringValue') {
        return super.evaluate({ ...node, callee: { ...callee, object: hold(object) } }, scope)
      }
      const characters = args.length === 0 ? null : this.evaluate(args[0], scope)
      if (characters !== null && characters.type !== 'StringValue') {
        const held = { ...node, callee: { ...callee, object: hold(object) }, args: [hold(characters)] }
        return super.evaluate(held, scope)
      }
      return text(strip(object.value as string, characters?.value as string | undefined, ends))
    }
    if (node.type !== 'FilterExpression' || node.filter?.type !== 'Identifier') return null
    if (node.filter.value !== 'string' && node.filter.value !== 'trim') return null
    const operand = this.evaluate(node.operand, scope)
    if (node.filter.value === 'string' && operand.type === 'NullValue') return text('None')
    if (node.filter.value === 'string' || operand.type !== 'StringValue') {
      return super.evaluate({ ...node, operand: hold(operand) }, scope)
    }
    return text(strip(operand.value as string, undefined, STRIPPED.strip!))
  }

  #spend(units: number): void {
    this.#workLeft -= units
    if (this.#workLeft < 0) throw new Error('it takes too many units of work')
  }

  /** Adds a child's result to the inputs of the current node. */
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

  /** Counts the work of an operation on its inputs. */
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

  /** The size of a value. Throws if it is too large, before anything reads it. */
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
      // A list that contains itself is found by its depth.
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

  /** The number of a macro's nodes: all are visited when it is defined. */
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

/** Whether the methods of Python's texts strip the beginning and the end. */
const STRIPPED: Readonly<Record<string, readonly [boolean, boolean]>> = {
  strip: [true, true],
  lstrip: [true, false],
  rstrip: [false, true],
}
/** What Python takes for white space: JavaScript's but U+FEFF, and the separators U+001C to U+001F and U+0085. */
const isWhite = (each: string) => (/\s/.test(each) && each !== '\ufeff') || /[\u0085]/.test(each) || isSeparator(each)
const isSeparator = (each: string) => each.charCodeAt(0) >= 0x1c && each.charCodeAt(0) <= 0x1f

/** A text without `characters` (code points; default white space) at its ends. */
function strip(text: string, characters: string | undefined, [atBegin, atEnd]: readonly [boolean, boolean]): string {
  const set = characters === undefined ? null : new Set(characters)
  const isOff = (each: string) => set?.has(each) ?? isWhite(each)
  let [begin, end] = [0, text.length]
  while (atBegin && begin < end) {
    const first = String.fromCodePoint(text.codePointAt(begin)!)
    if (!isOff(first)) break
    begin += first.length
  }
  while (atEnd && begin < end) {
    const pair = text.slice(Math.max(begin, end - 2), end)
    const last = [...pair].at(-1)!
    if (!isOff(last)) break
    end -= last.length
  }
  return text.slice(begin, end)
}

function isMultiplyingNode(node: Node): boolean {
  const isFilter = node.type === 'FilterExpression' || node.type === 'FilterStatement'
  return isFilter && MULTIPLYING.includes(filterName(node))
}

interface Entries {
  readonly size: number
  values(): Iterable<Value>
}

/** The entries of a list or an object; null for other values. */
function entriesOf(value: Value): Entries | null {
  const inside = value.value
  if (inside instanceof Map) return inside as Map<string, Value>
  if (!Array.isArray(inside)) return null
  return { size: inside.length, values: () => inside as Value[] }
}

/** The numbers of Python's range. Throws if they exceed a value's size. */
function rangeOf(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop]
  if (step === 0) throw new Error('range() step must not be zero')
  const count = Math.max(0, Math.ceil((to - from) / step))
  if (!(count * (ENTRY_SIZE + SCALAR.size) <= MAX_SIZE)) throw new Error(`range() of ${count} numbers is too long`)
  return Array.from({ length: count }, (_, i) => from + i * step)
}

/** Parses a template. @throws Error with the fault, or with the limit that was exceeded. */
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
    throw new Error('it is nested too deep to be read', { cause }) // The parser's recursion overflowed the stack.
  }
}

function longestBlanks(source: string): number {
  let longest = 0
  for (const [blanks] of source.matchAll(/\s+/g)) longest = Math.max(longest, blanks.length)
  return longest
}

/** Adds the nodes of this part of a template to `count`. Stops when there are too many. */
function countNodes(part: unknown, depth: number, count: number): number {
  if (typeof part !== 'object' || part === null || count > MAX_NODES) return count
  const isNode = !Array.isArray(part) && !(part instanceof Map)
  if (isNode && depth > MAX_DEPTH) throw new Error(`it is nested more than ${MAX_DEPTH} deep`)
  let sum = isNode ? count + 1 : count
  const inside = part instanceof Map ? part : Object.values(part)
  for (const child of inside) sum = countNodes(child, isNode ? depth + 1 : depth, sum)
  return sum
}

/** Renders a template with these variables, without a clock. @throws Error with its reason, or the exceeded limit. */
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
