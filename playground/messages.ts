/** Messages between the page and its two workers: the one that trains, and the one whose lanes are seen. */

import type { PageReport } from 'colonnade'

/** A built-in environment by its id, or the text of one's own. */
export interface Source {
  readonly environment: string
  /** Null for a built-in environment. */
  readonly code: string | null
}

/** What can be changed while it learns. */
export interface Tuning {
  readonly learningRate: number
  readonly entropyCoef: number
}

export type Format = 'onnx' | 'module' | 'arrow'

/** To the worker that trains. */
export type Ask =
  | { readonly ask: 'begin'; readonly source: Source; readonly seed: number; readonly tuning: Tuning | null }
  | { readonly ask: 'go' | 'pause' }
  | { readonly ask: 'tune'; readonly tuning: Tuning }
  | { readonly ask: 'file'; readonly format: Format }

/** To the worker with the lanes. */
export type AskLanes =
  | { readonly ask: 'examine' }
  | { readonly ask: 'begin'; readonly source: Source; readonly seed: number; readonly numLanes: number }
  | { readonly ask: 'weights'; readonly weights: Float32Array<ArrayBuffer> }
  | {
      readonly ask: 'frame'
      readonly steps: number
      /** The lane that is looked at. */
      readonly lane: number
      /** A person's action in the last lane; null where the policy chooses. */
      readonly action: number | null
    }

export interface Wrong {
  readonly told: 'wrong'
  readonly message: string
}

/** From the worker that trains. */
export type Told =
  | Wrong
  | { readonly told: 'begun'; readonly tuning: Tuning }
  | {
      readonly told: 'update'
      readonly steps: number
      readonly seconds: number
      /** Mean return of the last 100 episodes; null while none has ended. */
      readonly episodeReturn: number | null
      readonly isSolved: boolean
      readonly returnThreshold: number | null
      /** Of the policy's choices, in nats. */
      readonly entropy: number
      /** A copy of the policy's weights; null if a copy was sent less than a frame ago. */
      readonly weights: Float32Array<ArrayBuffer> | null
    }
  | { readonly told: 'file'; readonly name: string; readonly bytes: Uint8Array<ArrayBuffer> }

/** From the worker with the lanes. */
export type ToldLanes =
  | Wrong
  | { readonly told: 'browser'; readonly report: PageReport }
  | {
      readonly told: 'begun'
      readonly numLanes: number
      readonly shape: readonly number[]
      /** Bounds of the numbers of an observation. */
      readonly low: readonly number[]
      readonly high: readonly number[]
      /** How many actions there are; 0 for real numbers, of which the bounds follow. */
      readonly numActions: number
      readonly bounds: readonly [low: number, high: number]
    }
  | {
      readonly told: 'frame'
      readonly observation: Float32Array<ArrayBuffer>
      /** Steps of each lane's episode so far. */
      readonly taken: Int32Array<ArrayBuffer>
      /** What the policy did last in the lane that is looked at, how probable that was (a density of real numbers), and its value. */
      readonly seen: {
        readonly action: readonly number[]
        readonly probability: number
        readonly value: number
        readonly episodeReturn: number
      }
      /** The return of the last lane's episode. */
      readonly mine: number
    }
