/** The beginning of episodes and of steps: kernels of the reset and step systems. */

/** Fills `rows` with the lanes of `from` to `to` that are in phase `lowest` or a later one. Returns how many they are. */
export function listPhase(rows: Uint32Array, phase: Uint8Array, lowest: number, from: number, to: number): number {
  let count = 0
  for (let n = from; n < to; n++) {
    if (phase[n]! >= lowest) {
      rows[count] = n
      count++
    }
  }
  return count
}

/** Starts the next episode, with 0 steps, return 0 and phase `ready`, for each of the lanes rows[0 … count). */
export function beginEpisodes(
  episode: Uint32Array,
  step: Int32Array,
  episodeReturn: Float64Array,
  phase: Uint8Array,
  rows: Uint32Array,
  ready: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const n = rows[i]!
    episode[n] = episode[n]! + 1
    step[n] = 0
    episodeReturn[n] = 0
    phase[n] = ready
  }
}

/** Clears both flags of lanes `from` to `to`, before an environment steps. */
export function clearFlags(terminated: Uint8Array, truncated: Uint8Array, from: number, to: number): void {
  for (let n = from; n < to; n++) {
    terminated[n] = 0
    truncated[n] = 0
  }
}
