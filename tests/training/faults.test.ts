/**
 * Every n-th file operation of a run fails, or ends the process: then the run goes on, to the same bits, or says that it cannot.
 * `npm run test:tiers` tries a part of all places; `npm run faults` all of them, each kind of fault, and 200 kills at random.
 */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/index.ts'
import { start } from '../support/command.ts'
import { faults, type Kind, putFault, SETTINGS, traces, trainIn } from '../support/faults.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { seeded } from '../support/tiers.ts'

const isLong = import.meta.env.MODE === 'faults'
const HOUR_MS = 3_600_000
const KILLS = 100
/** Of so many places `npm run test:tiers` tries one. */
const STRIDE = 48
const program = fileURLToPath(new URL('../support/crashing-run.mjs', import.meta.url))

/** A run without a fault: what it leaves, and how many file operations it took. */
async function whole(kind: Kind) {
  const folder = join(await temporaryFolder(), kind)
  const none = putFault(0, 'EIO', false)
  await trainIn(kind, folder).finally(none.undo)
  return { expected: traces(folder), count: none.count() }
}

function launch(kind: Kind, n: number, folder: string) {
  const { environment, words } = SETTINGS[kind]
  return start(process.execPath, [program, kind, String(n), folder, environment, ...words])
}

describe.each(['control', 'text'] as const)('of a %s training', (kind) => {
  test.each(faults)(
    'every operation that fails with %s leaves a run that goes on to the same bits',
    async (fault) => {
      const { expected, count } = await whole(kind)
      let ended = 0
      for (const isForGood of [false, true]) {
        const first = 1 + 4 * faults.indexOf(fault) + (isForGood ? STRIDE / 2 : 0)
        for (let n = isLong ? 1 : first; n <= count; n += isLong ? 1 : STRIDE) {
          const folder = join(await temporaryFolder(), 'run')
          const { undo } = putFault(n, fault, isForGood)
          const outcome = await trainIn(kind, folder).then(
            () => 'complete',
            (error) => error,
          )
          undo()
          const where = `operation ${n} of ${count}${isForGood ? ' and all that follow' : ''}`
          if (outcome !== 'complete') {
            expect(outcome, `${where}: ${outcome?.stack}`).toBeInstanceOf(InputError)
            ended++
            await trainIn(kind, folder)
          }
          expect(traces(folder), where).toEqual(expected)
        }
      }
      if (isLong)
        console.log(`${kind}, ${fault}: ${2 * count} faults, ${ended} runs ended by them, all went on to the same bits`)
      expect(ended).toBeGreaterThan(count / (2 * STRIDE))
    },
    HOUR_MS,
  )

  test.runIf(isLong)(
    'every operation at which the process is killed leaves a run that goes on to the same bits',
    async () => {
      const { expected, count } = await whole(kind)
      for (let n = 1; n <= count; n++) {
        const folder = join(await temporaryFolder(), 'run')
        const killed = await launch(kind, n, folder).ended
        expect(killed.code, killed.stderr).toBe(null)
        await trainIn(kind, folder)
        expect(traces(folder), `operation ${n}`).toEqual(expected)
        expect(readdirSync(folder).filter((name) => name.startsWith('.'))).toEqual([])
      }
      console.log(`${kind}: ${count} kills, one at each operation, all went on to the same bits`)
    },
    HOUR_MS,
  )

  test.runIf(isLong)(
    `${KILLS} random kills leave runs that go on to the same bits`,
    async () => {
      const { expected } = await whole(kind)
      let longest = 0
      let unfinished = 0
      const random = seeded(1)
      for (let kill = -3; kill < KILLS; kill++) {
        const folder = join(await temporaryFolder(), 'run')
        const { process: child, ended, printed } = launch(kind, 0, folder)
        // The first ones run to their end, to measure. Some kills come before the run has begun to train.
        if (kill % 4 !== 0) await printed('begun')
        else while (!existsSync(folder)) await pause(1)
        const from = performance.now()
        if (kill >= 0) {
          await pause(random() * longest)
          child.kill('SIGKILL')
        }
        const { code, stderr } = await ended
        if (kill < 0) {
          expect(code, stderr).toBe(0)
          longest = Math.max(longest, performance.now() - from)
        } else if (code === null) unfinished++
        await trainIn(kind, folder)
        expect(traces(folder), `kill ${kill}`).toEqual(expected)
      }
      console.log(`${kind}: ${KILLS} random kills, ${unfinished} of them before the end, all went on to the same bits`)
    },
    HOUR_MS,
  )
})
