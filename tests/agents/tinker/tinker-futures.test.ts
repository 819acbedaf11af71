import { expect, test } from 'vitest'
import { TinkerFutures } from '../../../src/agents/tinker/tinker-futures.ts'

const { signal } = new AbortController()

test('drops the oldest results that were asked for when they have too many numbers, and no others', async () => {
  const futures = new TinkerFutures()
  const large = Array(2 ** 22).fill(0)
  const add = () => futures.add(async () => ({ outputs: [{ data: large }] }))
  const unasked = add()
  const asked = [add(), add(), add(), add()]
  for (const id of asked) await futures.retrieve(id, signal)
  expect(await futures.retrieve(asked[3], signal)).toEqual({ outputs: [{ data: large }] })
  await expect(futures.retrieve(asked[0], signal)).rejects.toThrow('request_id')
  expect(await futures.retrieve(unasked, signal)).toEqual({ outputs: [{ data: large }] })
})
