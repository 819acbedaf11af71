/** An environment that no worker can make: its module fails there, in the way that the query of its address says. */
import { writeSync } from 'node:fs'
import { isMainThread } from 'node:worker_threads'
import { cartPole } from '../../dist/src/index.js'

const way = new URL(import.meta.url).searchParams.get('way')

function throwLate() {
  throw new Error('boom, late')
}

if (!isMainThread) {
  writeSync(1, 'failing\n')
  if (way === 'import') throw new Error('boom in import')
  if (way === 'late') setTimeout(throwLate, 1)
  if (way === 'unhandled') void Promise.reject(new Error('boom, unhandled'))
  await new Promise((resolve) => (way === 'stuck' ? undefined : setTimeout(resolve, 10_000)))
}

const { id, ...inner } = cartPole()
export const mainOnly = Object.assign(() => ({ ...inner, id: 'MainOnly-v0', module: import.meta.url }), {
  id: 'MainOnly-v0',
})
