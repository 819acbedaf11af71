/** The colors of tokens: strong where there is something to see. */

/** What a token can be colored by. */
export const colorings = ['log-probability', 'advantage', 'mask'] as const
/** One of these. */
export type Coloring = (typeof colorings)[number]

/** What is known of a token. */
export interface TokenFacts {
  /** In nats; null where none is recorded. */
  readonly logprob: number | null
  /** Whether it is learned from. */
  readonly isLearned: boolean
  /** Of its conversation; null where it has none. */
  readonly advantage: number | null
}

/** For and against; ink is read on both, on light and on dark. */
const [FOR, AGAINST] = ['47, 127, 184', '213, 94, 0']
/** The strongest color, and the log-probability that has it: one token in 150. */
const [STRONGEST, UNLIKELY] = [0.5, -5]

/** The color behind a token, '' for none. `scale` is the greatest advantage of the group, of whatever sign. */
export function tokenColor(coloring: Coloring, { logprob, isLearned, advantage }: TokenFacts, scale: number): string {
  const color = (hue: string, strength: number): string => {
    const alpha = Math.round(100 * STRONGEST * Math.min(1, strength)) / 100
    return alpha > 0 ? `rgba(${hue}, ${alpha})` : ''
  }
  if (coloring === 'mask') return isLearned ? color(FOR, 0.6) : ''
  if (coloring === 'log-probability') return logprob === null ? '' : color(AGAINST, logprob / UNLIKELY)
  if (!isLearned || advantage === null || scale === 0) return ''
  return color(advantage > 0 ? FOR : AGAINST, Math.abs(advantage) / scale)
}

/** What the colors say. */
export const legends: Readonly<Record<Coloring, string>> = {
  'log-probability': 'The more orange, the less probable the token was when it was drawn.',
  advantage:
    'Blue tokens are made more probable, orange ones less; the strongest of the group have the strongest color.',
  mask: 'Blue tokens are learned from.',
}
