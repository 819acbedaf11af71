import { mkdir, readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { inflateSync } from 'node:zlib'
import { beforeAll, describe, expect, test } from 'vitest'
import { terminalTexts } from '../../src/cli/replay.ts'
import { replayPage } from '../../src/cli/replay-page.ts'
import { inProcess } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

const SMALL = ['numLanes=4', 'totalSteps=64', 'ppo.numSteps=16', 'ppo.numMinibatches=2', 'threads=1', '--quiet']
const COUNTER = new URL('../support/counter.ts', import.meta.url).pathname
let here: string
beforeAll(async () => {
  here = await temporaryFolder()
  for (const [id, out] of [
    ['ConnectFour-v0', 'game'],
    ['CartPole-v1', 'pole'],
    [COUNTER, 'counter'],
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
    expect(await numFrames(path)).toBe(Number(steps) + 1)
    expect([...(await readFile(path)).subarray(6, 10)]).toEqual([7 * 16, 0, 6 * 16, 0])

    const again = await inProcess(['replay', 'game', 'out=again.gif', 'delayMs=50', '--json'], here)
    expect(JSON.parse(again.stdout)).toMatchObject({ run: 'game', out: 'again.gif', update: 1, steps: Number(steps) })
    const [one, two] = await Promise.all([path, join(here, 'again.gif')].map((each) => readFile(each)))
    expect(one!.length).toBe(two!.length)
    const delays = [...one!.entries()].filter(([at, byte]) => byte !== two![at])
    expect(new Set(delays.map(([, byte]) => byte))).toEqual(new Set([10])) // Hundredths of a second.
    expect(delays).toHaveLength(Number(steps) + 1)
  })

  test('draws how an episode begins and what each step leads to, and tells it in a page that asks for nothing', async () => {
    const { code, stdout } = await inProcess(['replay', 'pole', '--json'], here)
    expect(code).toBe(0)
    const { steps, episodeReturn } = JSON.parse(stdout)
    expect(episodeReturn).toBe(steps)
    expect(await numFrames(join(here, 'pole/replay.gif'))).toBe(steps + 1)
    expect((await inProcess(['replay', 'pole', 'out=pole.html'], here)).code).toBe(0)
    const page = await readFile(join(here, 'pole.html'), 'utf8')
    expect(page).not.toMatch(/(src|href)=|https?:/)
    expect(page).toContain("default-src 'none'")
    const [, json] = /<script type="application\/json" id="episode">(.*?)<\/script>/s.exec(page)!
    const { rows, columns, count, actions, rewards, packed } = JSON.parse(json!)
    expect([count, actions.length, rewards.length]).toEqual([steps + 1, steps, steps])
    const fields = inflateSync(Buffer.from(packed, 'base64'))
    expect(fields).toHaveLength(count * rows * columns)
    const [first, last] = [fields.subarray(0, rows * columns), fields.subarray(-rows * columns)]
    // It stands at first, and leans at last: its top is no longer above the cart.
    const leanOf = (picture: Uint8Array) => {
      const cart = [...picture.entries()].flatMap(([at, color]) => (color === 1 ? [at % columns] : []))
      return Math.abs((picture.indexOf(2) % columns) - (Math.min(...cart) + Math.max(...cart)) / 2)
    }
    expect(leanOf(first)).toBeLessThan(2.5)
    expect(leanOf(last)).toBeGreaterThan(3.5)
  })

  test('leaves what was there where the file cannot be put in its place', async () => {
    await mkdir(join(here, 'kept/taken.gif/inside'), { recursive: true })
    const { code, stderr } = await inProcess(['replay', 'game', 'out=kept/taken.gif'], here)
    expect([code, stderr]).toEqual([1, expect.stringContaining('expected a place that can be written')])
    expect(await readdir(join(here, 'kept'), { recursive: true })).toEqual(['taken.gif', 'taken.gif/inside'])
  })

  test('a title that looks like a page stays a title', () => {
    const picture = { rows: 1, columns: 1, fields: Uint8Array.of(0) }
    const page = replayPage(
      { title: '</script><b a="1">', pictures: [picture], actions: ['</script>'], rewards: [1] },
      50,
    )
    expect(page).toContain('<title>&lt;/script>&lt;b a=&quot;1&quot;></title>')
    expect(page.split('</script>')).toHaveLength(3)
  })

  test.each([
    [
      ['replay', 'counter', `trust=${COUNTER}`],
      /environment Counter-v0: got no draw, and observations that are no grid/,
    ],
    [['replay', 'game', 'out=game.png'], /out: got game\.png, expected a name that ends in \.gif or \.html/],
    [['replay', 'game', 'delay=3'], /key: got "delay"/],
    [['replay', 'nowhere'], /run: got nowhere/],
  ])('%j is refused, and nothing is written', async (words, message) => {
    const { code, stderr } = await inProcess(words, here)
    expect(code).toBe(1)
    expect(stderr).toMatch(message)
    await expect(stat(join(here, 'counter/replay.gif'))).rejects.toThrow('ENOENT')
  })
})

test('a terminal is told to draw one picture over the other', () => {
  const picture = (...fields: number[]) => ({ rows: 2, columns: 1, fields: Uint8Array.from(fields) })
  const [first, second] = terminalTexts([picture(0, 1), picture(1, 0)])
  const [ground, mark] = ['\x1b[48;2;24;26;32m  \x1b[0m\n', '\x1b[48;2;86;180;233m  \x1b[0m\n']
  expect(first).toBe(ground + mark)
  expect(second).toBe(`\x1b[2A${mark}${ground}`)
})
