import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { transformerShape } from '../../../src/language/transformer/config.ts'
import { fillAngles } from '../../../src/language/transformer/rope.ts'

interface Case {
  readonly config: { readonly rope_parameters: Readonly<Record<string, unknown>> }
  readonly context: number
  readonly positions: readonly number[]
  readonly cosine: readonly (readonly number[])[]
  readonly sine: readonly (readonly number[])[]
}

/** By tests/golden/record_rope.py. */
const cases: readonly Case[] = JSON.parse(
  readFileSync(new URL('../../golden/rope-angles.json', import.meta.url), 'utf8'),
)

describe('the angles of RoPE', () => {
  test.each(cases)('are those of transformers within 3e-6 ($config.rope_parameters, $context tokens)', (each) => {
    const { rope, rotaryWidth, contextLength } = transformerShape(each.config as never)
    const half = rotaryWidth / 2
    expect(half).toBe(each.cosine[0]!.length)
    const cosine = new Float32Array(each.context * half)
    const sine = new Float32Array(each.context * half)
    fillAngles(cosine, sine, rotaryWidth, rope, contextLength)
    each.positions.forEach((position, row) => {
      for (let k = 0; k < half; k++) {
        expect(Math.abs(cosine[position * half + k]! - each.cosine[row]![k]!), `${position}, ${k}`).toBeLessThan(3e-6)
        expect(Math.abs(sine[position * half + k]! - each.sine[row]![k]!), `${position}, ${k}`).toBeLessThan(3e-6)
      }
    })
  })
})
