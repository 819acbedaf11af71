import { expect, test } from 'vitest'
import { Random } from '../../src/base/random.ts'
import { orthogonal } from '../../src/policies/orthogonal.ts'

test.each([
  [310, 301],
  [257, 520],
])('a matrix of %i × %i, more vectors than a panel has, is orthogonal along its longer side', (rows, columns) => {
  const weight = new Float32Array(rows * columns)
  orthogonal(weight, rows, columns, 1, new Random(1), 0, 0)
  const tall = rows >= columns
  const at = (vector: number, i: number) => weight[tall ? i * columns + vector : vector * columns + i]!
  let worst = 0
  for (let a = 0; a < Math.min(rows, columns); a++) {
    for (let b = 0; b <= a; b++) {
      let product = 0
      for (let i = 0; i < Math.max(rows, columns); i++) product += at(a, i) * at(b, i)
      worst = Math.max(worst, Math.abs(product - (a === b ? 1 : 0)))
    }
  }
  expect(worst).toBeLessThan(1e-6)
})
