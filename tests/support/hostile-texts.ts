/** Texts that tokenizers get wrong: characters of every class of Unicode, white space, contractions and pieces of tokens. */
import { seeded } from './tiers.ts'

const CLASSES = [
  ...['Lu', 'Ll', 'Lt', 'Lm', 'Lo', 'Mn', 'Mc', 'Me', 'Nd', 'Nl', 'No', 'Pc', 'Pd', 'Ps', 'Pe', 'Pi', 'Pf', 'Po'],
  ...['Sm', 'Sc', 'Sk', 'So', 'Zs', 'Zl', 'Zp', 'Cc', 'Cf', 'Co', 'Cn'],
]
const PIECES = [
  ...['Hello', 'the', 'Word', 'WORDS', 'iPhone', 'naïve', 'Straße', 'İstanbul', 'ΣΑΣ', 'ǅ', 'don', 'we', '日本', 'ไทย'],
  ...["'s", "'S", "'ſ", "'t", "'RE", "'ve", "'M", "'lL", "'d", "'\u{212a}", '’s', "'", "''s"],
  ...['0', '12', '2024', '٣٤', '½', 'Ⅷ', '²', '1.5', '①'],
  ...[' ', '  ', '   ', '        ', '\t', '\t\t', '\n', '\n\n', '\n\n\n', '\r\n', '\r', '\v', '\f', '\u{85}', '\u{a0}'],
  ...['\u{feff}', '\u{200b}', '\u{180e}', '\u{2028}', '\u{3000}', '\u{202f}', '\u{200d}', '\u{fffd}', '\u{0}'],
  ...[
    'e\u{301}',
    'a\u{345}\u{334}',
    '\u{1100}\u{1161}\u{11a8}',
    '\u{105d2}\u{307}',
    '👩‍👩‍👧',
    '🇫🇷',
    '👍🏽',
    '\u{20000}',
  ],
  ...['<|im_start|>', '<|im_end|>', '<|endoftext|>', '<|eot_id|>', '<think>', '<s>', '</s>', '<unk>', '<|im_', '|>'],
  ...['<|user|>', '<|end|>', '<mask>', '[INST]', '<start_of_turn>', '<table>', '<b>', '<0x0A>', '▁', '▁▁', 'Ġ', 'Ċ'],
  ...['{', '}', '()', '//', '/*', '==', '!?', '…', '“', '-', '_', '$', '#', '\\', '.', ','],
]

/** As many texts, each of 1 to 24 pieces; the same for the same seed. */
export function hostileTexts(number: number, seed: number): string[] {
  const classes = CLASSES.map((): number[] => [])
  const tests = CLASSES.map((name) => new RegExp(`^\\p{${name}}$`, 'u'))
  for (let code = 0, last = 0; code < 0x110000; code++) {
    if (code === 0xd800) code = 0xe000
    const character = String.fromCodePoint(code)
    if (!tests[last]!.test(character)) last = tests.findIndex((each) => each.test(character))
    classes[last]!.push(code)
  }
  const random = seeded(seed)
  const below = (count: number) => Math.floor(random() * count)
  const piece = (): string => {
    const kind = below(5)
    if (kind < 3) return PIECES[below(PIECES.length)]!
    if (kind === 3) {
      const of = classes[below(classes.length)]!
      // Half of the characters are among the first, which people write.
      const range = random() < 0.5 ? Math.min(of.length, 200) : of.length
      return String.fromCodePoint(of[below(range)]!)
    }
    return PIECES[below(PIECES.length)]!.repeat(1 + below(4))
  }
  return Array.from({ length: number }, () => Array.from({ length: 1 + below(24) }, piece).join(''))
}
