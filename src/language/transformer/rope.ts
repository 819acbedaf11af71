/** Rotary position embeddings: how `config.json` describes them, and their angles. */
import { InputError, show } from '../../base/errors.ts'

/** How RoPE's frequencies are scaled. The names of methods and parameters are those of `config.json`. */
export type RopeScaling =
  | { readonly kind: 'linear'; readonly factor: number }
  | {
      readonly kind: 'llama3'
      readonly factor: number
      readonly low_freq_factor: number
      readonly high_freq_factor: number
      readonly original_max_position_embeddings: number
    }
  /** The base grows with the context that memory is planned for. */
  | { readonly kind: 'dynamic'; readonly factor: number }
  | {
      readonly kind: 'yarn'
      readonly factor: number
      readonly original_max_position_embeddings: number
      readonly beta_fast?: number
      readonly beta_slow?: number
      readonly attention_factor?: number
      readonly mscale?: number
      readonly mscale_all_dim?: number
      readonly truncate?: boolean
    }
  /** `long_factor` counts where memory is planned for more than the original positions. */
  | {
      readonly kind: 'longrope'
      readonly short_factor: readonly number[]
      readonly long_factor: readonly number[]
      readonly original_max_position_embeddings: number
      readonly factor?: number
      readonly attention_factor?: number
    }

/** The rotation of some layers' queries and keys. */
export interface Rope {
  readonly theta: number
  readonly scaling: RopeScaling | null
}

/** The required and the optional parameters of each method. */
const KINDS: Readonly<Record<string, { readonly needs: readonly string[]; readonly may?: readonly string[] }>> = {
  default: { needs: [] },
  linear: { needs: ['factor'] },
  llama3: { needs: ['factor', 'low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings'] },
  dynamic: { needs: ['factor'], may: ['original_max_position_embeddings'] },
  yarn: {
    needs: ['factor', 'original_max_position_embeddings'],
    may: ['beta_fast', 'beta_slow', 'attention_factor', 'mscale', 'mscale_all_dim', 'truncate'],
  },
  longrope: {
    needs: ['short_factor', 'long_factor', 'original_max_position_embeddings'],
    may: ['factor', 'attention_factor'],
  },
}
/** Names of `longrope` in older files of Phi-3. */
const FORMER_KINDS: Readonly<Record<string, string>> = { su: 'longrope' }

/**
 * Reads the parameters of one rotation; `name` is their key. `others` are defaults from other places of the configuration.
 * @throws InputError for a method that is not implemented, and for parameters that are missing, unknown or not above 0.
 */
export function readRope(
  name: string,
  given: unknown,
  others: Readonly<Record<string, unknown>>,
  refuse: (name: string, got: unknown, expected: string) => InputError,
): Rope & { readonly partial: unknown } {
  if (typeof given !== 'object' || given === null) throw refuse(name, given, 'an object')
  const { rope_type, type, rope_theta, partial_rotary_factor, ...parameters } = given as Record<string, unknown>
  const named = rope_type ?? type ?? 'default'
  const kind = FORMER_KINDS[String(named)] ?? named
  if (typeof kind !== 'string' || !Object.hasOwn(KINDS, kind)) {
    throw refuse(`${name}, rope_type`, kind, `one of ${Object.keys(KINDS).join(', ')}: no other scaling is implemented`)
  }
  const { needs, may = [] } = KINDS[kind]!
  const known = [...needs, ...may]
  const other = Object.keys(parameters).find((key) => !known.includes(key))
  if (other !== undefined) {
    throw refuse(`${name}, ${other}`, parameters[other], `${['rope_type', 'rope_theta', ...known].join(', ')} alone`)
  }
  const read: Record<string, unknown> = {}
  for (const key of known) {
    // A number of original positions beside the parameters counts, as in transformers.
    const value = needs.includes(key) ? (others[key] ?? parameters[key]) : parameters[key]
    if (value === undefined || (value === null && may.includes(key))) {
      if (needs.includes(key)) throw refuse(`${name}, ${key}`, value, 'a number above 0')
      continue
    }
    const isList = key === 'short_factor' || key === 'long_factor'
    const isRight = (each: unknown) => typeof each === 'number' && each > 0 && each < Infinity
    if (
      key === 'truncate'
        ? typeof value !== 'boolean'
        : isList
          ? !(Array.isArray(value) && value.every(isRight))
          : !isRight(value)
    ) {
      throw refuse(
        `${name}, ${key}`,
        value,
        key === 'truncate' ? 'true or false' : isList ? 'numbers above 0' : 'a number above 0',
      )
    }
    read[key] = value
  }
  const { low_freq_factor: low, high_freq_factor: high } = read as Record<string, number>
  if (kind === 'llama3' && high! <= low!) throw refuse(`${name}, high_freq_factor`, high, `more than ${low}`)
  const theta = rope_theta ?? others.rope_theta
  if (typeof theta !== 'number' || !(theta > 0 && theta < Infinity))
    throw refuse('rope_theta', theta, 'a number above 0')
  return {
    theta,
    scaling: kind === 'default' ? null : ({ kind, ...read } as RopeScaling),
    partial: partial_rotary_factor,
  }
}

/** Checks that each list of factors has one for each pair of rotated elements. */
export function checkRope({ scaling }: Rope, rotaryWidth: number, subject: string): void {
  if (scaling?.kind !== 'longrope') return
  for (const key of ['short_factor', 'long_factor'] as const) {
    if (scaling[key].length === rotaryWidth / 2) continue
    throw new InputError(
      `${subject}, ${key}`,
      show(scaling[key].length),
      `${rotaryWidth / 2} numbers, one for each pair`,
    )
  }
}

/**
 * Fills cosines and sines of position · θ^(−2k / rotaryWidth), scaled: context × rotaryWidth / 2. Frequencies and angles
 * are rounded to f32 where `transformers` rounds them: at position 30,000 another rounding moves an angle by some
 * thousandths from the model's training.
 */
export function fillAngles(
  cosine: Float32Array,
  sine: Float32Array,
  rotaryWidth: number,
  { theta, scaling }: Rope,
  contextLength: number,
): void {
  const { fround } = Math
  const half = rotaryWidth / 2
  const context = cosine.length / half
  const base =
    scaling?.kind === 'dynamic' ? dynamicBase(theta, scaling.factor, rotaryWidth, context, contextLength) : theta
  const logTheta = Math.log(base)
  const factor = scaling === null ? 1 : attentionFactor(scaling, contextLength)
  for (let k = 0; k < half; k++) {
    const power = fround(Math.exp(fround(k / half) * logTheta))
    const frequency = scaledFrequency(power, k, rotaryWidth, theta, scaling, context)
    for (let position = 0; position < context; position++) {
      const angle = fround(position * frequency)
      cosine[position * half + k] = fround(Math.cos(angle)) * factor
      sine[position * half + k] = fround(Math.sin(angle)) * factor
    }
  }
}

/** NTK-aware scaling: the base for sequences of the context's length. */
function dynamicBase(theta: number, factor: number, width: number, context: number, contextLength: number): number {
  const length = Math.max(context, contextLength)
  return theta * Math.exp(Math.log((factor * length) / contextLength - (factor - 1)) * (width / (width - 2)))
}

/** The factor of cosines and sines. */
function attentionFactor(scaling: RopeScaling, contextLength: number): number {
  if (scaling.kind === 'yarn') {
    const { factor, attention_factor: given, mscale, mscale_all_dim: all } = scaling
    const scale = (by: number) => (factor <= 1 ? 1 : 0.1 * by * Math.log(factor) + 1)
    return given ?? (mscale !== undefined && all !== undefined ? scale(mscale) / scale(all) : scale(1))
  }
  if (scaling.kind !== 'longrope') return 1
  const { original_max_position_embeddings: original, attention_factor: given } = scaling
  const { factor = contextLength / original } = scaling
  return given ?? (factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(original)))
}

/**
 * Scales the frequency 1 / power of pair k: `linear` divides it; `llama3` (Llama 3.1) divides long wavelengths and keeps
 * short ones, and so does `yarn` (Peng et al. 2023), by pair; `longrope` has a factor for each pair.
 */
function scaledFrequency(
  power: number,
  k: number,
  width: number,
  theta: number,
  scaling: RopeScaling | null,
  context: number,
): number {
  const { fround } = Math
  const frequency = fround(1 / power)
  switch (scaling?.kind) {
    case undefined:
    case 'dynamic':
      return frequency
    case 'linear':
      return fround(frequency / scaling.factor)
    case 'llama3':
      return llama3Frequency(frequency, scaling)
    case 'longrope': {
      const isLong = context > scaling.original_max_position_embeddings
      return fround(1 / fround(fround((isLong ? scaling.long_factor : scaling.short_factor)[k]!) * power))
    }
    case 'yarn': {
      const { factor, original_max_position_embeddings: positions, truncate = true } = scaling
      const { beta_fast: fast = 32, beta_slow: slow = 1 } = scaling
      const pairOf = (turns: number) => (width * Math.log(positions / (turns * 2 * Math.PI))) / (2 * Math.log(theta))
      const low = Math.max(truncate ? Math.floor(pairOf(fast)) : pairOf(fast), 0)
      const high = Math.min(truncate ? Math.ceil(pairOf(slow)) : pairOf(slow), width - 1)
      const ramp = fround(fround(k - low) / fround(low === high ? 0.001 : high - low))
      const kept = fround(1 - Math.min(Math.max(ramp, 0), 1))
      const divided = fround(1 / fround(factor * power))
      return fround(fround(divided * fround(1 - kept)) + fround(frequency * kept))
    }
  }
}

function llama3Frequency(frequency: number, scaling: RopeScaling & { kind: 'llama3' }): number {
  const { fround } = Math
  const divided = fround(frequency / scaling.factor)
  const { low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings: positions } = scaling
  // PyTorch divides a number by a tensor as the number times the rounded reciprocal.
  const wavelength = fround(fround(2 * Math.PI) * fround(1 / frequency))
  if (wavelength > positions / low) return divided
  if (wavelength < positions / high) return frequency
  const smooth = fround(fround(fround(positions * fround(1 / wavelength)) - low) / fround(high - low))
  const scaled = fround(fround(fround(1 - smooth) * frequency) / scaling.factor)
  return fround(scaled + fround(smooth * frequency))
}
