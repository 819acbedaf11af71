/** Texts of constraints: whether one is an answer, and answers by chance. */
import type { Constraint } from '../../src/environments/text.ts'
import { grammarsOf, type Matcher } from '../../src/language/grammars/grammars.ts'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'

const tokenizer = byteTokenizer()
const [END] = tokenizer.endIds as [number]
const grammars = grammarsOf(tokenizer, tokenizer.vocabularySize)

/** The ids that may come next. */
export function allowed(matcher: Matcher): number[] {
  const mask = matcher.next()
  return Array.from({ length: tokenizer.vocabularySize }, (_, id) => id).filter(
    (id) => ((mask![id >> 5]! >>> (id & 31)) & 1) === 1,
  )
}

/** Whether a text is an answer. */
export function isAnswer(constraint: Constraint, text: string): boolean {
  const matcher = grammars.matcherOf(constraint)
  return tokenizer.encode(text).every((id) => matcher.accept(id)) && matcher.accept(END)
}

/** An answer by chance that tends to its end; null if it has none after so many bytes. */
export function answerOf(constraint: Constraint, draw: () => number, most = 300): string | null {
  const matcher = grammars.matcherOf(constraint)
  const ids: number[] = []
  while (ids.length < most) {
    const all = allowed(matcher)
    if (all.length === 0) throw new Error(`no token may follow ${tokenizer.decode(ids)}`)
    const ends = all.filter((id) => id === END || '"}]'.includes(String.fromCharCode(id)))
    const list = ends.length > 0 && draw() < 0.25 ? ends : all
    const id = list[Math.floor(draw() * list.length)]!
    if (!matcher.accept(id)) throw new Error(`token ${id} of the mask is refused behind ${tokenizer.decode(ids)}`)
    if (id === END) return tokenizer.decode(ids)
    ids.push(id)
  }
  return null
}
