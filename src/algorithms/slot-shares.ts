/**
 * Shares of a gradient's slots. The slots in use are divided into at most `shareCount` shares of equally many consecutive ones, a power of
 * two, which the pairwise sum of all slots keeps together: so each share is summed alone.
 */

/** Consecutive slots. */
export interface SlotRange {
  readonly first: number
  readonly end: number
}

export function shareSize(numSlots: number, shareCount: number): number {
  return Math.max(1, 2 ** Math.ceil(Math.log2(numSlots)) / shareCount)
}

/** Number of shares that have slots. */
export function numShares(numSlots: number, shareCount: number): number {
  return Math.ceil(numSlots / shareSize(numSlots, shareCount))
}

export function slotsOfShare(share: number, numSlots: number, shareCount: number): SlotRange {
  const size = shareSize(numSlots, shareCount)
  return { first: share * size, end: Math.min(numSlots, (share + 1) * size) }
}
