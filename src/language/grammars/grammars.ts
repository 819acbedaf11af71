/**
 * The tokens that may come next in a constrained answer, as masks: bit id % 32 of word ⌊id / 32⌋ is 1 if the token may come. A token that
 * ends a turn may come only where the answer may end. The masks depend only on the constraint, the tokenizer and the tokens before, so
 * training computes them again from recorded data.
 */
import { InputError } from '../../base/errors.ts'
import type { Constraint } from '../../environments/text.ts'
import type { Tokenizer } from '../tokenizers/tokenizer.ts'
import { maskWords } from '../transformer/sampling.ts'
import { Automaton, type Position } from './automaton.ts'
import { readGrammar } from './gbnf.ts'
import { regexGrammar } from './regex-grammar.ts'
import { characterClass } from './rules.ts'
import { schemaGrammar } from './schema-grammar.ts'
import { tokenBytes } from './token-bytes.ts'
import { Vocabulary } from './vocabulary.ts'

/** Constraints whose automata are kept for the next answer. */
const KEPT_MAX = 64
/** Their sizes together, about 250 MB. */
const KEPT_SIZE_MAX = 4_000_000
/** The most characters of a constraint. */
const LENGTH_MAX = 100_000

/** Constrained answers over one vocabulary. */
export class Grammars {
  readonly #tokenizer: Tokenizer
  readonly numWords: number
  /** The mask of every token. */
  readonly all: Int32Array
  readonly #withoutEnds = new WeakMap<Int32Array, Int32Array>()
  #vocabulary: Vocabulary | null = null
  /** Automata by the JSON of their constraints, the last used last. */
  readonly #automata = new Map<string, Automaton>()

  constructor(tokenizer: Tokenizer, vocabularySize: number) {
    this.#tokenizer = tokenizer
    this.numWords = maskWords(vocabularySize)
    this.all = new Int32Array(this.numWords).fill(-1)
  }

  /** A mask without the tokens that end a turn: the same array for the same mask. */
  withoutEnds(mask: Int32Array): Int32Array {
    const known = this.#withoutEnds.get(mask)
    if (known !== undefined) return known
    const others = mask.slice()
    for (const id of this.#tokenizer.endIds) others[id >> 5]! &= ~(1 << (id & 31))
    this.#withoutEnds.set(mask, others)
    return others
  }

  /**
   * Starts an answer.
   * @throws InputError for a constraint that is invalid or cannot be enforced, and for a tokenizer whose tokens have unknown bytes or that
   * has no end token.
   */
  matcherOf(constraint: Constraint): Matcher {
    const key = JSON.stringify(constraint)
    const automaton = this.#automata.get(key) ?? automatonOf(constraint)
    this.#automata.delete(key)
    this.#automata.set(key, automaton)
    this.#drop()
    this.#vocabulary ??= this.#read()
    return new Matcher(automaton, this.#vocabulary)
  }

  /** Drops the automata that were not used for longest, while there are too many or they are too large. */
  #drop(): void {
    let size = 0
    for (const each of this.#automata.values()) size += each.size
    for (const [key, { size: own }] of this.#automata) {
      const isFew = this.#automata.size <= KEPT_MAX && size <= KEPT_SIZE_MAX
      if (isFew || this.#automata.size === 1) return
      this.#automata.delete(key)
      size -= own
    }
  }

  #read(): Vocabulary {
    const { endIds, id } = this.#tokenizer
    if (endIds.length > 0) return new Vocabulary(tokenBytes(this.#tokenizer), endIds, this.numWords)
    throw new InputError(`tokenizer ${id}`, 'no end token', 'an end token, for constrained answers')
  }
}

/** Whether a whole text meets a constraint. @throws InputError for a constraint that is invalid or cannot be enforced. */
export function isOfConstraint(constraint: Constraint, text: string): boolean {
  const automaton = automatonOf(constraint)
  let at: Position | null = automaton.start
  for (const byte of new TextEncoder().encode(text)) if (at !== null) at = automaton.after(at, byte)
  return at?.isEnd ?? false
}

/** @throws InputError for a constraint that is invalid, cannot be enforced, or is too large. */
function automatonOf(constraint: Constraint): Automaton {
  const { length } = JSON.stringify(constraint)
  if (length > LENGTH_MAX) {
    throw new InputError('constraint', `${length} characters`, `at most ${LENGTH_MAX}`)
  }
  try {
    return new Automaton(readGrammar(grammarOf(constraint)))
  } catch (error) {
    if (!(error instanceof RangeError)) throw error // Its recursion ends the stack.
    throw new InputError('constraint', 'too many levels of nesting', 'fewer levels', { cause: error })
  }
}

/** A constraint as a grammar in GBNF. @throws InputError for one that is invalid or cannot be enforced. */
export function grammarOf(constraint: Constraint): string {
  if ('grammar' in constraint) return constraint.grammar
  if ('regex' in constraint) return `root ::= ${regexGrammar(constraint.regex, characterClass, true, 'regex')}`
  return schemaGrammar(constraint.schema)
}

/** One answer, up to its last token. */
export class Matcher {
  readonly #automaton: Automaton
  readonly #vocabulary: Vocabulary
  /** Null behind an end token. */
  #position: Position | null

  constructor(automaton: Automaton, vocabulary: Vocabulary) {
    this.#automaton = automaton
    this.#vocabulary = vocabulary
    this.#position = automaton.start
  }

  /** Adds a token. Returns false, and changes nothing, if it may not come. */
  accept(token: number): boolean {
    let at = this.#position
    if (at === null) return false
    if (this.#vocabulary.isEnd(token)) {
      if (at.isEnd) this.#position = null
      return at.isEnd
    }
    const bytes = this.#vocabulary.bytesOf(token)
    for (let i = 0; i < bytes.length && at !== null; i++) at = this.#automaton.after(at, bytes[i]!)
    if (at === null || bytes.length === 0) return false
    this.#position = at
    return true
  }

  /** The mask of the next token, which must not be changed; the same array for the same position. Null behind an end token. */
  next(): Int32Array | null {
    return this.#position === null ? null : this.#vocabulary.maskAt(this.#automaton, this.#position)
  }
}

const known = new WeakMap<Tokenizer, Map<number, Grammars>>()

/** The constrained answers of a tokenizer over a model's vocabulary: the same object for the same arguments. */
export function grammarsOf(tokenizer: Tokenizer, vocabularySize: number): Grammars {
  const sizes = known.get(tokenizer) ?? new Map<number, Grammars>()
  known.set(tokenizer, sizes)
  const grammars = sizes.get(vocabularySize) ?? new Grammars(tokenizer, vocabularySize)
  sizes.set(vocabularySize, grammars)
  return grammars
}
