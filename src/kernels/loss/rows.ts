/** The columns of the losses of actor and critic. */

/** The policy's current outputs for the block's rows; their gradients have the same rows. */
export interface EvaluatedRows {
  readonly logprob: Float32Array
  readonly entropy: Float32Array
  readonly value: Float32Array
}

/** Gradients of the loss, which are written. */
export interface RowDerivatives {
  readonly dLogprob: Float32Array
  readonly dEntropy: Float32Array
  readonly dValue: Float32Array
}

/** Columns of the minibatch: the recorded ones (old logprob and value), and the targets. */
export interface RecordedRows {
  readonly logprob: Float32Array
  readonly value: Float32Array
  readonly advantage: Float32Array
  readonly return: Float32Array
}
