/** A page has the bodies of kernels that have no compiled twin, and no others; so none may be missing. */
import { expect, test } from 'vitest'
import { beside, hasPlain } from '../../src/kernels/bodies.page.ts'
import { bodies as games } from '../../src/kernels/grids/bodies.page.ts'
import * as plainGames from '../../src/kernels/grids/plain.ts'
import * as plain from '../../src/kernels/plain.ts'
import { bindTwins } from '../../src/kernels/twins.ts'
import * as uncompiled from '../../src/kernels/uncompiled.ts'

test('every kernel of a page has a body: compiled, or plain where it is not', () => {
  const twins = bindTwins({} as never, () => 0, {} as never)
  const all = Object.keys(plain).toSorted()
  expect(all.length).toBeGreaterThan(150)
  expect([...new Set([...Object.keys(beside), ...Object.keys(twins)])].toSorted()).toEqual(all)
  // What has a twin is not carried, but for columns of f64.
  expect(Object.keys(uncompiled).filter((name) => name in twins)).toEqual([])
  expect(Object.keys(beside).filter((name) => name in twins)).toEqual(['cartPoleStep', 'pendulumStep'])
  expect(hasPlain).toBe(false)
})

test('grid games have a compiled body for each of their kernels in a page, and carry no other', () => {
  expect(Object.keys(games).toSorted()).toEqual(Object.keys(plainGames).toSorted())
  for (const [name, body] of Object.entries(plainGames)) expect(games[name as keyof typeof games], name).not.toBe(body)
})
