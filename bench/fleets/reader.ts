/** A process of `npm run bench -- fleets` that reads a blob when it is told to, and answers with its bytes. Ends with its parent. */
import { openStore, type StoreAddress } from '../../src/fleet/address.ts'

export interface Asked {
  readonly store: StoreAddress
  readonly hash: string
}

process.on('message', async ({ store: address, hash }: Asked) => {
  const store = await openStore(address)
  const { length } = await store.get(hash)
  await store.close()
  process.send!(length)
})
process.on('disconnect', () => process.exit())
process.send!('ready')
