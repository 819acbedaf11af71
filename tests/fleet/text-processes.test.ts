/** Language models that learn from the actors of a fleet: real processes over a real broker, with kills. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type NatsServer, startNats, whyNoNats } from '../support/fleet-carriers.ts'
import { copyPackage, Programs } from '../support/fleet-programs.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { seeded } from '../support/tiers.ts'

const reason = await whyNoNats()

describe.skipIf(reason !== null)('a language model with a fleet of processes', () => {
  let nats: NatsServer
  let folder: string
  let programs: Programs
  const trained = [
    ...['mode=rl', 'rl.groupsPerUpdate=6', 'rl.groupSize=4', 'languageModel.width=32', 'languageModel.layers=1'],
    ...['seed=3', 'numLanes=16', 'checkpointEvery=3', 'checkpointsKept=1', 'trajectories=all', '--quiet'],
  ]
  /** The rows that a run has learned from, by update, and its model at the end. */
  const recorded = async (name: string) => {
    const files = (await readdir(join(folder, name, 'trajectories'))).sort().map((file) => `trajectories/${file}`)
    const whole = [...files, 'model/model.safetensors']
    return Promise.all(whole.map(async (file) => [file, await readFile(join(folder, name, file), 'base64')]))
  }

  test('helpers that are killed during gradients change no bit, and a learner that is killed finds them again', async () => {
    const settings = [...trained.filter((word) => !word.startsWith('rl.groupsPerUpdate')), 'rl.groupsPerUpdate=16']
    settings.push('rl.updates=60', 'rl.updateEpochs=2', 'threads=1')
    const alone = await programs.run('train', 'text/reverse', ...settings, 'out=one')
    expect(alone.code, alone.text).toBe(0)
    const address = `${nats.address}/helped`
    const fleet = [`fleet=${address}`, `store=${join(folder, 'store')}`, 'learners=4', 'actorSeconds=2']
    const kills = await programs.help(address, 'helped', ['text/reverse', ...settings, ...fleet], seeded(7))
    expect(await recorded('helped')).toEqual(await recorded('one'))
    console.warn(`killed: ${JSON.stringify(kills)}`)
  }, 600_000)

  beforeAll(async () => {
    nats = await startNats()
    folder = await temporaryFolder()
    programs = new Programs(await copyPackage('colonnade-text'), folder)
  })
  afterAll(async () => {
    programs.end()
    await nats.end()
  })

  test.each([
    ['checkpoint', 0],
    ['update', 1],
  ])(
    'kills of actors, learner and broker change no bit, acknowledged at each %s with maxStaleness %i',
    async (acknowledge, staleness) => {
      const { start, run } = programs
      const draw = seeded(staleness + 3)
      const ahead = staleness === 0 ? [] : ['rl.maxStaleness=1', 'loss.correction=token-truncate']
      const settings = [...trained, 'rl.updates=60', ...ahead]
      const whole = `alone${staleness}`
      if (staleness === 0) {
        const alone = await run('train', 'text/reverse', ...settings, `out=${whole}`)
        expect(alone.code, alone.text).toBe(0)
      } else {
        // Of one process, conversations go on with new weights in the middle; those of a fleet end with the ones they began with.
        const address = `${nats.address}/one`
        const actor = start('actor', address)
        const fleet = [`fleet=${address}`, `store=${join(folder, 'store')}`]
        const learner = await run('train', 'text/reverse', ...settings, ...fleet, `out=${whole}`)
        expect(learner.code, learner.text).toBe(0)
        expect(await actor.ended, actor.text()).toBe(0)
      }
      const address = `${nats.address}/killed${staleness}`
      const fleet = [`fleet=${address}`, 'actors=3', `store=${join(folder, 'store')}`]
      const patience = ['actorSeconds=2', `acknowledge=${acknowledge}`]
      const out = `killed${staleness}`
      const train = ['text/reverse', ...settings, ...fleet, ...patience]
      const kills = await programs.survive(nats, address, out, train, draw)
      expect(await recorded(out)).toEqual(await recorded(whole))
      const blobs = await readdir(join(folder, 'store', out), { recursive: true })
      expect(blobs.filter((name) => name.length > 60).length).toBeLessThan(12)
      console.warn(`maxStaleness ${staleness}, killed: ${JSON.stringify(kills)}`)
    },
    600_000,
  )
})
