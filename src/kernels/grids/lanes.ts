/** What the steps of grid games read and write beside their state: row n of each column is lane n. */
export interface GridLanes {
  readonly observation: Uint8Array
  readonly reward: Float32Array
  readonly terminated: Uint8Array
  readonly action: Int32Array
  readonly lane: Uint32Array
  readonly episode: Uint32Array
  readonly step: Int32Array
}
