/** What grid games read and write beside their state: row n of each column is lane n. */

/** For the beginning of an episode. */
export interface NewLanes {
  readonly observation: Uint8Array
  readonly lane: Uint32Array
  readonly episode: Uint32Array
}

/** For a step. */
export interface GridLanes extends NewLanes {
  readonly reward: Float32Array
  readonly terminated: Uint8Array
  readonly action: Int32Array
  readonly step: Int32Array
}
