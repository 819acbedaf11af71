/** Messages between the page and its worker. */

/** Messages from the page. */
export type Ask =
  | { readonly ask: 'begin'; readonly environment: string; readonly seed: number; readonly learningRate: number }
  | { readonly ask: 'go' | 'pause' }
  | { readonly ask: 'rate'; readonly learningRate: number }
  | { readonly ask: 'file'; readonly format: Format }

export type Format = 'onnx' | 'module' | 'arrow'

/** Messages from the worker. */
export type Told =
  | {
      readonly told: 'update'
      readonly steps: number
      readonly seconds: number
      /** Mean return of the last 100 episodes; null while none has ended. */
      readonly episodeReturn: number | null
      readonly isSolved: boolean
      /** A copy of the policy's weights; null if a copy was sent less than a frame ago. */
      readonly weights: Float32Array<ArrayBuffer> | null
    }
  | { readonly told: 'file'; readonly name: string; readonly bytes: Uint8Array<ArrayBuffer> }
  | { readonly told: 'wrong'; readonly message: string }
