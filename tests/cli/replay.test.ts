import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { terminalTexts } from '../../src/cli/replay.ts'
import { inProcess } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

const SMALL = ['numLanes=4', 'totalSteps=64', 'ppo.numSteps=16', 'ppo.numMinibatches=2', 'threads=1', '--quiet']
let here: string
beforeAll(async () => {
  here = await temporaryFolder()
  for (const [id, out] of [
    ['ConnectFour-v0', 'game'],
    ['CartPole-v1', 'pole'],
  ]) {
    expect((await inProcess(['train', id!, `out=${out}`, ...SMALL], here)).stderr).toBe('')
  }
})

/** Frames of a GIF: each begins with a graphic control extension. */
async function numFrames(path: string): Promise<number> {
  const file = (await readFile(path)).toString('latin1')
  expect([file.slice(0, 6), file.at(-1)]).toEqual(['GIF89a', ';'])
  return file.split('\x21\xf9\x04').length - 1
}

describe('colonnade replay', () => {
  test('writes an episode of the trained policy as a GIF, the same each time, of a game as its first lane sees it', async () => {
    const { code, stdout, stderr } = await inProcess(['replay', 'game'], here)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const [, steps] = /^(\d+) steps of update 1, return (?:1|0|-1) → game\/replay\.gif\n$/.exec(stdout)!
    expect(Number(steps)).toBeGreaterThanOrEqual(7) // Nobody wins sooner.
    const path = join(here, 'game/replay.gif')
    expect(await numFrames(path)).toBe(Number(steps))
    expect([...(await readFile(path)).subarray(6, 10)]).toEqual([7 * 16, 0, 6 * 16, 0])

    const again = await inProcess(['replay', 'game', 'out=again.gif', 'delayMs=50', '--json'], here)
    expect(JSON.parse(again.stdout)).toMatchObject({ run: 'game', out: 'again.gif', update: 1, steps: Number(steps) })
    const [one, two] = await Promise.all([path, join(here, 'again.gif')].map((each) => readFile(each)))
    expect(one!.length).toBe(two!.length)
    const delays = [...one!.entries()].filter(([at, byte]) => byte !== two![at])
    expect(new Set(delays.map(([, byte]) => byte))).toEqual(new Set([10])) // Hundredths of a second.
    expect(delays).toHaveLength(Number(steps))
  })

  test.each([
    [['replay', 'pole'], /observationSpace: got .+, expected a grid: rows × columns × 1 to 15 channels/],
    [['replay', 'game', 'out=game.png'], /out: got game\.png, expected a name that ends in \.gif/],
    [['replay', 'game', 'delay=3'], /key: got "delay"/],
    [['replay', 'nowhere'], /run: got nowhere/],
  ])('%j is refused, and nothing is written', async (words, message) => {
    const { code, stderr } = await inProcess(words, here)
    expect(code).toBe(1)
    expect(stderr).toMatch(message)
    await expect(stat(join(here, 'pole/replay.gif'))).rejects.toThrow('ENOENT')
  })
})

test('a terminal is told to draw one picture over the other', () => {
  const picture = (...fields: number[]) => ({ rows: 2, columns: 1, fields: Uint8Array.from(fields) })
  const [first, second] = terminalTexts([picture(0, 1), picture(1, 0)])
  const [ground, mark] = ['\x1b[48;2;24;26;32m  \x1b[0m\n', '\x1b[48;2;86;180;233m  \x1b[0m\n']
  expect(first).toBe(ground + mark)
  expect(second).toBe(`\x1b[2A${mark}${ground}`)
})
