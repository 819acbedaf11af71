/**
 * Finds the steps of a `tokenizer.json` that are known to be quick: their output is about as long as their input, and
 * their regular expressions are the published ones below, which take at most quadratic time. Short texts then need no
 * time limit, which would take ten times as long as the text itself.
 */

/** Characters or ids up to which quick steps need no limit. */
export const QUICK_LENGTH = 2 ** 11

const words = (digits: string) =>
  String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|${digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
const KNOWN_PATTERNS = new Set([
  words(String.raw`\p{N}`), // Qwen2, Qwen2.5, Qwen3
  words(String.raw`\p{N}{1,3}`), // Llama 3
  String.raw`[\s\S]`, // One character each: our own tokenizers.
])
const KEEPS_LENGTH = new Set([
  'NFC',
  'NFD',
  'NFKC',
  'Lowercase',
  'Digits',
  'ByteLevel',
  'ByteFallback',
  'Fuse',
  'Strip',
])

/** Whether all steps of a `normalizer`, `pre_tokenizer` or `decoder` are known to be quick. */
export function isQuick(part: unknown): boolean {
  if (part === null || part === undefined) return true
  const { type, pattern, content, prepend, replacement, str_rep, normalizers, pretokenizers, decoders } =
    part as Record<string, unknown>
  const isShort = (text: unknown) => typeof text === 'string' && text.length <= 1
  switch (type) {
    case 'Sequence':
      return [normalizers, pretokenizers, decoders].flatMap((steps) => steps ?? []).every(isQuick)
    case 'Split':
      return KNOWN_PATTERNS.has((pattern as { Regex?: string } | undefined)?.Regex ?? '')
    case 'Replace':
      return typeof (pattern as { String?: string } | undefined)?.String === 'string' && isShort(content)
    case 'Prepend':
      return isShort(prepend)
    case 'Metaspace':
      return isShort(replacement) && str_rep === undefined
    default:
      return KEEPS_LENGTH.has(type as string)
  }
}
