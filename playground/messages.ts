/** What the page and its worker tell each other. */

/** What the page asks for. */
export type Ask =
  | { readonly ask: 'begin'; readonly environment: string; readonly seed: number; readonly learningRate: number }
  | { readonly ask: 'go' | 'pause' }
  | { readonly ask: 'rate'; readonly learningRate: number }
  | { readonly ask: 'file'; readonly format: Format }

export type Format = 'onnx' | 'module' | 'arrow'

/** What the worker tells. */
export type Told =
  | {
      readonly told: 'update'
      readonly steps: number
      readonly seconds: number
      /** Mean return of the last 100 episodes; null while none has ended. */
      readonly episodeReturn: number | null
      readonly isSolved: boolean
      /** A copy of the policy's weights; null where they were told less than a frame ago. */
      readonly weights: Float32Array<ArrayBuffer> | null
    }
  | { readonly told: 'file'; readonly name: string; readonly bytes: Uint8Array<ArrayBuffer> }
  | { readonly told: 'wrong'; readonly message: string }
