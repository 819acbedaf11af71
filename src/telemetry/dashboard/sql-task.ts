/** What the thread of SQL queries is asked for. */

/** A page of the answer to a query. */
export interface SqlTask {
  readonly path: string
  /** Changes when the file does. */
  readonly key: string
  /** One query, whose table is `rows`. */
  readonly query: string
  readonly from: number
  readonly count: number
}
