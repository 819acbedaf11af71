/** Filters of rows, of runs and of Arrow files. The dashboard page uses this module too. */

/** `column operator value`: numbers are compared as numbers, other values as text; `~` tests whether the text contains the value. */
export interface RowFilter {
  readonly column: string
  readonly operator: '=' | '!=' | '<=' | '>=' | '<' | '>' | '~'
  readonly value: string
}

/** Parses a filter such as `reward > 0.5`. Null if it is invalid. */
export function parseFilter(text: string): RowFilter | null {
  const [, column, operator, value] = /^\s*([^\s=!<>~]+)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*$/.exec(text) ?? []
  return column === undefined ? null : { column, operator: operator as RowFilter['operator'], value: value! }
}

/** Whether the column's value `got` passes the filter. `inWords`: its text. */
export function passesFilter(
  got: unknown,
  { operator, value }: RowFilter,
  inWords: (got: unknown) => string = String,
): boolean {
  if (operator === '~') return inWords(got).toLowerCase().includes(value.toLowerCase())
  const isNumber = (typeof got === 'number' || typeof got === 'bigint') && value !== '' && !Number.isNaN(Number(value))
  const [a, b] = isNumber ? [Number(got), Number(value)] : [inWords(got), value]
  if (operator === '=') return a === b
  if (operator === '!=') return a !== b
  if (got === null || got === undefined) return false
  if (operator === '<') return a < b
  if (operator === '>') return a > b
  return operator === '<=' ? a <= b : a >= b
}
