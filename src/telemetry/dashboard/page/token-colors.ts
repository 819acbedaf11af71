/** Colors of tokens: the stronger, the more notable. */

export const colorings = ['log-probability', 'advantage', 'mask'] as const
export type Coloring = (typeof colorings)[number]

export interface TokenFacts {
  /** In nats; null if not recorded. */
  readonly logprob: number | null
  /** Whether it is trained. */
  readonly isLearned: boolean
  /** Of its conversation; null if it has none. */
  readonly advantage: number | null
}

/** Colors for higher and lower; text is readable on both, in light and dark mode. */
const [FOR, AGAINST] = ['47, 127, 184', '213, 94, 0']
/** The maximum opacity, and the log-probability that has it: one token in 150. */
const [STRONGEST, UNLIKELY] = [0.5, -5]

/** The color behind a token, '' for none. `scale` is the greatest absolute advantage of the group. */
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

export const legends: Readonly<Record<Coloring, string>> = {
  'log-probability': 'The more orange, the less probable the token was when it was sampled.',
  advantage:
    'Training makes blue tokens more probable and orange ones less; the largest advantages of the group have the strongest color.',
  mask: 'Blue tokens are trained.',
}
