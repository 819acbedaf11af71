/**
 * Random numbers for sampling actions, keyed by (seed, lane, episode, step): numRows × width numbers, written from row
 * 0 on, for the lanes of the rows from `from` on. Four numbers come from one Philox block; a step owns ceil(width / 4) blocks.
 */
import { boxMuller, philox4x32, Stream, unitFromWord } from '../../base/random.ts'

/** Uniform numbers in [0, 1). `words` (4) is workspace. */
export function drawUniform(
  uniform: Float32Array,
  words: Uint32Array,
  lane: Uint32Array,
  episode: Uint32Array,
  step: Int32Array,
  key0: number,
  key1: number,
  numRows: number,
  width: number,
  from: number,
): void {
  const blocks = Math.ceil(width / 4)
  for (let row = 0; row < numRows; row++) {
    const n = from + row
    for (let k = 0; k < width; k++) {
      if (k % 4 === 0) {
        philox4x32(words, step[n]! * blocks + k / 4, episode[n]!, lane[n]!, Stream.action, key0, key1)
      }
      uniform[row * width + k] = unitFromWord(words[k % 4]!)
    }
  }
}

/** Standard normal numbers; each pair comes from two words (Box and Muller). `words` (4) is workspace. */
export function drawNormal(
  normal: Float32Array,
  words: Uint32Array,
  lane: Uint32Array,
  episode: Uint32Array,
  step: Int32Array,
  key0: number,
  key1: number,
  numRows: number,
  width: number,
  from: number,
): void {
  const blocks = Math.ceil(width / 4)
  for (let row = 0; row < numRows; row++) {
    const n = from + row
    for (let k = 0; k < width; k++) {
      if (k % 4 === 0) {
        philox4x32(words, step[n]! * blocks + k / 4, episode[n]!, lane[n]!, Stream.action, key0, key1)
      }
      const pair = k % 4 < 2 ? 0 : 2
      normal[row * width + k] = boxMuller(words[pair]!, words[pair + 1]!, k % 2)
    }
  }
}
