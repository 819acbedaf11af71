/**
 * Steps of a tokenizer as the Rust library `tokenizers` 0.23 does them, where `@huggingface/tokenizers` 0.2 gives other ids or texts.
 * Models were trained with the ids of the Rust library, so it is the reference, even where its Unicode tables are older than Node's: its
 * regular expressions have those of Unicode 16, and its normal forms those of Unicode 9.
 */

import { escaped } from './tokenizer.ts'
import { INCOMPATIBLE, SINCE_16, UNCOMPOSED } from './unicode-tables.ts'

type Json = Readonly<Record<string, unknown>>
/** A normalizer, pre-tokenizer or decoder of the library, or a sequence of some. */
type Step = Record<string, unknown> & Partial<Record<'normalizers' | 'tokenizers' | 'decoders', (Step | null)[]>>

const [LEADING_SPACE, TRAILING_SPACE] = [/^\p{White_Space}+/u, /\p{White_Space}+$/u]
const WORD = String.raw`\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}`
const [STARTS_WITH_WORD, ENDS_WITH_WORD] = [new RegExp(`^[${WORD}]`, 'u'), new RegExp(`[${WORD}]$`, 'u')]
const WORDS = new RegExp(String.raw`[${WORD}]+|[^${WORD}\p{White_Space}]+`, 'gu')
const GPT2 =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu

/** Parts of a `tokenizer.json` in which `(?i:…)` ignores case as the reference does: ſ is an s, and K (U+212A) a k. */
export function foldedAsReference(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(foldedAsReference)
  if (typeof part !== 'object' || part === null) return part
  return Object.fromEntries(
    Object.entries(part).map(([key, value]) => [
      key,
      key === 'Regex' && typeof value === 'string' ? folded(value) : foldedAsReference(value),
    ]),
  )
}

function folded(pattern: string): string {
  const wider = (letter: string): string => (letter.toLowerCase() === 's' ? 'sſ' : 'k\u{212a}')
  return pattern.replace(/\(\?i:([^()\\]*)\)/g, (_, body: string) => {
    const all = body.replace(/\[[^\]]*\]|[sk]/gi, (part) =>
      part.startsWith('[') ? part.replace(/[sk]/gi, wider) : `[${wider(part)}]`,
    )
    return `(?i:${all})`
  })
}

/** Replaces the steps of the library that differ from the reference. `config` is its part of `tokenizer.json`. */
export function stepAsReference(step: unknown, config: unknown): void {
  if (typeof config !== 'object' || config === null) return
  const own = step as Step
  const given = config as Json
  const inner = (given.normalizers ?? given.pretokenizers ?? given.decoders) as unknown[] | undefined
  const steps = own.normalizers ?? own.tokenizers ?? own.decoders
  for (const [i, each] of (steps ?? []).entries()) stepAsReference(each, inner?.[i])
  const type = String(given.type)
  if ('normalize' in own && Object.hasOwn(NORMALIZERS, type)) own.normalize = NORMALIZERS[type]!(given, own)
  if ('pre_tokenize_text' in own && Object.hasOwn(SPLITS, type)) own.pre_tokenize_text = SPLITS[type]!(given, own)
  if ('decode_chain' in own && Object.hasOwn(DECODERS, type)) own.decode_chain = DECODERS[type]!(given, own)
  // Of several texts, only the first starts where the whole text begins.
  if (type === 'Metaspace' && 'pre_tokenize' in own) own.pre_tokenize = metaspace(given, own)
}

type Make<Does> = Readonly<Record<string, (config: Json, step: Step) => Does>>

const NORMALIZERS: Make<(text: string) => string> = {
  NFC: () => (text) => normalForm(text, 'NFC', UNCOMPOSED),
  NFD: () => (text) => normalForm(text, 'NFD', UNCOMPOSED),
  NFKC: () => (text) => compatible(text, 'NFKC'),
  NFKD: () => (text) => compatible(text, 'NFKD'),
  // Each character by itself: the last sigma of a word is like any other.
  Lowercase: () => (text) => Array.from(text, (character) => character.toLowerCase()).join(''),
  Strip:
    ({ strip_left: left, strip_right: right }) =>
    (text) => {
      const begun = left ? text.replace(LEADING_SPACE, '') : text
      return right ? begun.replace(TRAILING_SPACE, '') : begun
    },
  Replace: ({ content }, step) => {
    const pattern = step.pattern as RegExp | null
    const by = typeof content === 'string' ? content : ''
    return (text) => {
      if (pattern === null) return text
      const shadow = shadowOf(text)
      if (shadow === text) return text.replace(pattern, () => by)
      let at = 0
      const kept = Array.from(shadow.matchAll(pattern), ({ index, 0: found }) => {
        const before = text.slice(at, index)
        at = index + found.length
        return before + by
      })
      return kept.join('') + text.slice(at)
    }
  },
}

const SPLITS: Make<(text: string) => string[]> = {
  Digits: ({ individual_digits: each }) => {
    return (text) => text.match(each ? /\P{N}+|\p{N}/gu : /\P{N}+|\p{N}+/gu) ?? []
  },
  WhitespaceSplit: () => (text) => text.match(/\P{White_Space}+/gu) ?? [],
  Whitespace: () => (text) => text.match(WORDS) ?? [],
  Split: ({ behavior, invert }, step) => {
    const pattern = step.pattern as RegExp | null
    return (text) =>
      pattern === null ? [text] : splitBy(text, pattern, String(behavior).toLowerCase(), invert === true)
  },
  Punctuation: ({ behavior = 'isolated' }) => {
    return (text) => splitBy(text, /[\p{P}!-/:-@[-`{-~]/gu, String(behavior).toLowerCase(), false)
  },
  ByteLevel: ({ add_prefix_space: prefixed, use_regex: split = true }, step) => {
    const letters = step.byte_encoder as Record<number, string>
    return (text) => {
      const whole = prefixed && !text.startsWith(' ') ? ` ${text}` : text
      const pieces = split ? splitBy(whole, GPT2, 'isolated', false) : [whole]
      return pieces.map((piece) => Array.from(encoder.encode(piece), (byte) => letters[byte]).join(''))
    }
  },
}

const DECODERS: Make<(tokens: string[]) => string[]> = {
  Replace: ({ content }, step) => {
    const by = typeof content === 'string' ? content : ''
    const pattern = step.pattern as RegExp | null
    return (tokens) => (pattern === null ? tokens : tokens.map((token) => token.replaceAll(pattern, () => by)))
  },
  ByteFallback: () => (tokens) => {
    const out: string[] = []
    let bytes: number[] = []
    const end = () => {
      if (bytes.length > 0) out.push(textOf(bytes))
      bytes = []
    }
    for (const token of tokens) {
      const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1]
      if (byte === undefined) {
        end()
        out.push(token)
      } else bytes.push(Number.parseInt(byte, 16))
    }
    end()
    return out
  },
  ByteLevel: (_, step) => {
    const bytes = step.byte_decoder as Record<string, number>
    return (tokens) => [
      lossy.decode(
        Uint8Array.from(
          tokens.flatMap((token) => {
            const letters = [...token]
            // A token with other letters was added; it stands for its own text.
            return letters.every((letter) => letter in bytes)
              ? letters.map((letter) => Number(bytes[letter]))
              : [...encoder.encode(token)]
          }),
        ),
      ),
    ]
  },
}

const encoder = new TextEncoder()
const lossy = new TextDecoder('utf-8', { ignoreBOM: true })
const strict = new TextDecoder('utf-8', { ignoreBOM: true, fatal: true })

/** The text of bytes in UTF-8. If they are invalid, each byte becomes one U+FFFD. */
function textOf(bytes: readonly number[]): string {
  try {
    return strict.decode(Uint8Array.from(bytes))
  } catch {
    return '\u{fffd}'.repeat(bytes.length)
  }
}

/** The normal form of a text, except for the characters that the reference does not change. */
function normalForm(text: string, form: string, left: RegExp): string {
  if (!left.test(text)) return text.normalize(form)
  return text
    .split(left)
    .map((piece, i) => (i % 2 === 0 ? piece.normalize(form) : piece))
    .join('')
}

function compatible(text: string, form: string): string {
  if (!INCOMPATIBLE.test(text)) return normalForm(text, form, UNCOMPOSED)
  return text
    .split(INCOMPATIBLE)
    .map((piece, i) => (i % 2 === 0 ? normalForm(piece, form, UNCOMPOSED) : piece))
    .join('')
}

/** A text of the same length that Node's regular expressions split as the reference splits the original. */
function shadowOf(text: string): string {
  // U+0295 was a small letter until Unicode 16, U+0378 and U+E0FFF are not assigned.
  return text.replaceAll('\u{295}', 'a').replace(SINCE_16, (letter) => (letter.length === 1 ? '\u{378}' : '\u{e0fff}'))
}

/** Splits a text by matches of a pattern, with the reference's meaning of `behavior`. */
function splitBy(text: string, pattern: RegExp, behavior: string, invert: boolean): string[] {
  const pieces: { begin: number; end: number; matches: boolean }[] = []
  let at = 0
  for (const { index, 0: found } of shadowOf(text).matchAll(pattern)) {
    if (index > at) pieces.push({ begin: at, end: index, matches: invert })
    at = index + found.length
    if (found.length > 0) pieces.push({ begin: index, end: at, matches: !invert })
  }
  if (at < text.length) pieces.push({ begin: at, end: text.length, matches: invert })
  if (behavior === 'removed')
    return pieces.flatMap(({ begin, end, matches }) => (matches ? [] : text.slice(begin, end)))
  if (behavior === 'isolated') return pieces.map(({ begin, end }) => text.slice(begin, end))
  const forward = behavior !== 'mergedwithnext'
  const out: { begin: number; end: number }[] = []
  let matched = false
  for (const { begin, end, matches } of forward ? pieces : pieces.reverse()) {
    const last = out.at(-1)
    if (last !== undefined && (behavior === 'contiguous' ? matches === matched : matches && !matched)) {
      if (forward) last.end = end
      else last.begin = begin
    } else out.push({ begin, end })
    matched = matches
  }
  return (forward ? out : out.reverse()).map(({ begin, end }) => text.slice(begin, end))
}

/** Replaces spaces by `replacement`, and puts one before a text. Words begin with it. */
function metaspace({ split = true }: Json, step: Step) {
  const { replacement, str_rep: written, prepend_scheme: scheme } = step as Record<string, string>
  return (texts: string | string[], { section_index: section }: { section_index?: number } = {}): string[] =>
    [texts].flat().flatMap((text, i) => {
      const spaced = text.replaceAll(' ', written!)
      const isPrefixed = scheme === 'always' || (scheme === 'first' && section === 0 && i === 0)
      const whole = isPrefixed && !spaced.startsWith(replacement!) ? written + spaced : spaced
      return split ? whole.split(new RegExp(`(?=${escaped(replacement!)})`, 'u')).filter((word) => word !== '') : whole
    })
}

/** An added token, which is found wherever it occurs, before a text is split into words. */
export interface AddedToken {
  readonly id: number
  readonly content: string
  readonly special?: boolean
  /** It is searched in the normalized text. */
  readonly normalized?: boolean
  /** It includes the white space before it, or after it. */
  readonly lstrip?: boolean
  readonly rstrip?: boolean
  /** It is not found inside words. */
  readonly single_word?: boolean
}

/** Splits a text into added tokens and the text between them. Special tokens count only with `special`. */
export function splitAdded(
  text: string,
  split: (text: string) => readonly string[],
  tokens: ReadonlyMap<string, AddedToken>,
  special: boolean,
): (string | AddedToken)[] {
  const out: (string | AddedToken)[] = []
  let at = 0
  let from = 0
  for (const piece of tokens.size === 0 ? [] : split(text)) {
    const token = tokens.get(piece)
    let begin = at
    at += piece.length
    let end = at
    if (token === undefined || (token.special && !special)) continue
    const before = text.slice(0, begin)
    const after = text.slice(end)
    const isInside = () =>
      ENDS_WITH_WORD.test(shadowOf(before.slice(-2))) || STARTS_WITH_WORD.test(shadowOf(after.slice(0, 2)))
    if (token.single_word && isInside()) continue
    if (token.lstrip) begin = Math.max(begin - (TRAILING_SPACE.exec(before)?.[0].length ?? 0), from)
    if (token.rstrip) end += LEADING_SPACE.exec(after)?.[0].length ?? 0
    if (from < begin) out.push(text.slice(from, begin))
    out.push(token)
    from = end
  }
  if (from < text.length) out.push(text.slice(from))
  return out
}
