import { expect, test } from 'vitest'
import { chooseExperts, chooseExpertsBackward, listByExpert } from '../../src/kernels/plain.ts'

const logits = Float32Array.of(
  ...[0, 2, 1, 2], // The second and the fourth are equal.
  ...[1, 1, 1, 1],
  ...[Number.NaN, 0, 0, 0],
)

test('each row takes the most probable experts, of equal ones those of lower index, in rising order', () => {
  const [share, chosen, probability] = [new Float32Array(6), new Int32Array(6), logits.slice()]
  chooseExperts(share, chosen, probability, 3, 4, 2, true)
  expect([...chosen]).toEqual([1, 3, 0, 1, 0, 1])
  expect([...share.subarray(0, 4)]).toEqual([0.5, 0.5, 0.5, 0.5])
  expect([...share.subarray(4)]).toEqual([Number.NaN, Number.NaN])
  const sum = 1 + 2 * Math.exp(2) + Math.E
  expect(probability[1]).toBeCloseTo(Math.exp(2) / sum, 6)
  chooseExperts(share, chosen, logits.slice(), 3, 4, 2, false)
  expect(share[0]).toBeCloseTo(Math.exp(2) / sum, 6)
})

test('places are listed by expert, those of one in rising order', () => {
  const [place, row, begin] = [new Uint32Array(6), new Uint32Array(6), new Int32Array(5)]
  listByExpert(place, row, begin, Int32Array.of(1, 3, 0, 1, 0, 3), 3, 4, 2)
  expect([...begin]).toEqual([0, 2, 4, 4, 6])
  expect([...place]).toEqual([2, 4, 0, 3, 1, 5])
  expect([...row]).toEqual([1, 2, 0, 1, 0, 2])
})

test.each([true, false])('the gradient by logits is that of finite differences (normalized: %s)', (normalized) => {
  const given = [0.3, -1, 0.9, 0.1, -0.2]
  const toward = [0.7, -1.3]
  const at = (index: number, by: number): number => {
    const [share, chosen] = [new Float32Array(2), new Int32Array(2)]
    const moved = Float32Array.from(given, (logit, i) => logit + (i === index ? by : 0))
    chooseExperts(share, chosen, moved, 1, 5, 2, normalized)
    return share[0]! * toward[0]! + share[1]! * toward[1]!
  }
  const [share, chosen, probability] = [new Float32Array(2), new Int32Array(2), Float32Array.from(given)]
  chooseExperts(share, chosen, probability, 1, 5, 2, normalized)
  chooseExpertsBackward(
    probability,
    Float32Array.from(toward),
    share,
    chosen,
    new Float32Array(0),
    new Int32Array(1),
    1,
    5,
    2,
    normalized,
  )
  given.forEach((_, index) => {
    expect(probability[index]).toBeCloseTo((at(index, 0.01) - at(index, -0.01)) / 0.02, 4)
  })
})
