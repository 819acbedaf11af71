/** The columns over which actor and critic have their loss. */

/** What the policy says of the block's rows now; its gradients have the same rows. */
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

/** Columns of the minibatch: what was recorded (logprob and value: the old ones), and what is learned. */
export interface RecordedRows {
  readonly logprob: Float32Array
  readonly value: Float32Array
  readonly advantage: Float32Array
  readonly return: Float32Array
}
