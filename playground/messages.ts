/** Messages between the page and its three workers: the one that trains, the one whose lanes are seen, and the one that draws them. */

import type { BoxSpace, PageReport } from 'colonnade'
import type { Colors } from './scenes.ts'

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
  /** The part of its time in which it may train. */
  | { readonly ask: 'share'; readonly share: number }
  | { readonly ask: 'tune'; readonly tuning: Tuning }
  | { readonly ask: 'file'; readonly format: Format }

/** To the worker with the lanes. */
export type AskLanes =
  | { readonly ask: 'examine' }
  | {
      readonly ask: 'begin'
      readonly source: Source
      readonly seed: number
      readonly numLanes: number
      /** Where frames go. */
      readonly frames: MessagePort
    }
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
      /** Of the lane that is looked at. */
      readonly observation: Float32Array<ArrayBuffer>
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

/** All lanes, from their worker to the one that draws. */
export interface Frame {
  readonly observation: Float32Array<ArrayBuffer>
  /** Steps of each lane's episode so far. */
  readonly taken: Int32Array<ArrayBuffer>
}

/** To the worker that draws. */
export type AskPainter =
  | { readonly ask: 'canvas'; readonly canvas: OffscreenCanvas }
  | { readonly ask: 'colors'; readonly colors: Colors }
  | { readonly ask: 'size'; readonly width: number; readonly height: number }
  | {
      readonly ask: 'lanes'
      readonly environment: string
      readonly space: BoxSpace
      readonly numActions: number
      readonly bounds: readonly [low: number, high: number]
      readonly numLanes: number
      /** Whether they stand side by side. */
      readonly isPlaying: boolean
      readonly frames: MessagePort
    }

/** From the worker that draws. */
export interface ToldPainter {
  readonly told: 'layout'
  readonly columns: number
  /** Lanes that are drawn: the first ones. */
  readonly drawn: number
}
