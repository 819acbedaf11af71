/** A page has the bodies of kernels that have no compiled twin, and no others; so none may be missing. */
import { execFileSync } from 'node:child_process'
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

test('a browser without SIMD is told so when a world is made, and by doctor', () => {
  const page = new URL('../../dist/page/', import.meta.url).href
  const program = `
    WebAssembly.validate = () => false
    const { cartPole, createWorld, doctor, mlp } = await import('${page}index.js')
    const { createKernels, kernelBuilds } = await import('${page}kernels/bind.js')
    const whyNot = async (act) => act().then(() => 'nothing', ({ message }) => message)
    const world = (kernels) => whyNot(() => createWorld({ environment: cartPole(), policy: mlp(), numLanes: 4, kernels }))
    const refused = [await world('best'), await world('plain'), await world('relaxed')]
    refused.push(await whyNot(async () => createKernels(new WebAssembly.Memory({ initial: 1 }))))
    console.log(JSON.stringify({ refused, builds: kernelBuilds(), kernels: (await doctor()).kernels }))`
  const said = execFileSync(process.execPath, ['--input-type=module', '--eval', program], { encoding: 'utf8' })
  const refused = 'kernels of this browser: got no SIMD in WebAssembly, expected a browser that has it'
  expect(JSON.parse(said)).toEqual({ refused: Array(4).fill(refused), builds: [], kernels: null })
})
