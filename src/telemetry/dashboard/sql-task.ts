/** Requests to the SQL thread. */

/** A page of a query's answer. */
export interface SqlTask {
  readonly path: string
  readonly key: string
  /** A query of the table `rows`. */
  readonly query: string
  readonly from: number
  readonly count: number
}
