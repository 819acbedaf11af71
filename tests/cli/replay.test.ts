import { mkdir, readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { inflateSync } from 'node:zlib'
import { beforeAll, describe, expect, test } from 'vitest'
import { terminalTexts } from '../../src/cli/commands/replay.ts'
import { replayPage } from '../../src/cli/show/replay-page.ts'
import { pictureColors } from '../../src/entries/environments.ts'
import { inProcess } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

const SMALL = ['numLanes=4', 'totalSteps=64', 'ppo.numSteps=16', 'ppo.numMinibatches=2', 'threads=1', '--quiet']
const LINE = new URL('../support/line-world.mjs', import.meta.url).pathname
let here: string
beforeAll(async () => {
  here = await temporaryFolder()
  for (const [id, out] of [
    ['ConnectFour-v0', 'game'],
    ['CartPole-v1', 'pole'],
    [LINE, 'line'],
  ]) {
    expect((await inProcess(['train', id!, `out=${out}`, ...SMALL], here)).stderr).toBe('')
  }
})

/** An element of a page, as far as its script asks for it. */
// biome-ignore lint/suspicious/noExplicitAny: it is whatever the script puts there.
type Part = Record<string, any>

/** Runs the script of a replay's page over elements without a browser: those, the pictures that it has shown, and its timer. */
async function opened(page: string) {
  const ids = ['step', 'action', 'reward', 'return', 'play', 'back', 'on', 'input']
  const elements: Record<string, Part> = Object.fromEntries(ids.map((id) => [id, {}]))
  const shown: number[][] = []
  elements.canvas = {
    getContext: () => ({
      createImageData: (width: number, height: number) => ({ data: new Uint8ClampedArray(4 * width * height) }),
      putImageData: ({ data }: { data: Uint8ClampedArray }) => shown.push([...data]),
    }),
  }
  const [, json] = /<script type="application\/json" id="episode">(.*?)<\/script>/s.exec(page)!
  elements.episode = { textContent: json }
  const [, script] = /<script type="module">(.*?)<\/script>/s.exec(page)!
  const find = (name: string) => elements[name]
  const beat: { call: (() => void) | null; delay: number } = { call: null, delay: 0 }
  const given = {
    document: { getElementById: find, querySelector: find },
    matchMedia: () => ({ matches: true }),
    setInterval: (call: () => void, delay: number) => Object.assign(beat, { call, delay }),
    clearInterval: () => Object.assign(beat, { call: null }),
  }
  const run = Object.getPrototypeOf(async () => {}).constructor
  await run(...Object.keys(given), script)(...Object.values(given))
  return { elements, shown, beat }
}

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
    expect([code, stderr]).toEqual([1, expect.stringContaining('expected a writable path')])
    expect(await readdir(join(here, 'kept'), { recursive: true })).toEqual(['taken.gif', 'taken.gif/inside'])
  })

  test('a title that looks like a page stays a title', () => {
    const picture = { rows: 1, columns: 1, fields: Uint8Array.of(0) }
    const page = replayPage(
      { title: '</script><b a="1">&lt;', pictures: [picture], actions: ['</script>'], rewards: [1] },
      50,
    )
    expect(page).toContain('<title>&lt;/script>&lt;b a=&quot;1&quot;>&amp;lt;</title>')
    expect(page.split('</script>')).toHaveLength(3)
  })

  test('the page shows each picture with what was done then, and what had been paid before', async () => {
    const pictures = [0, 1, 2].map((k) => ({ rows: 2, columns: 3, fields: Uint8Array.of(k, 0, 1, 2, 3, 4 + k) }))
    const episode = { title: 'Some', pictures, actions: ['left', 'right'], rewards: [1, -0.25] }
    const { elements, shown, beat } = await opened(replayPage(episode, 70))
    const told = () => ['step', 'action', 'reward', 'return'].map((id) => String(elements[id]!.textContent))
    const isShown = (k: number) => {
      const colors = [...pictures[k]!.fields].flatMap((field) => [...pictureColors[field]!, 255])
      expect(shown.at(-1)).toEqual(colors)
      expect(elements.input!.value).toBe(k)
    }
    expect([elements.canvas!.width, elements.canvas!.height, elements.input!.max]).toEqual([3, 2, 2])
    expect(told()).toEqual(['0 of 2', 'left', '1', '0'])
    isShown(0)
    expect(elements.play!.textContent).toBe('Play') // Who wants less motion begins it.
    elements.on!.onclick()
    expect(told()).toEqual(['1 of 2', 'right', '-0.25', '1'])
    isShown(1)
    elements.on!.onclick()
    elements.on!.onclick()
    expect(told()).toEqual(['2 of 2', 'none: the episode is over', '–', '0.75'])
    isShown(2)
    elements.play!.onclick() // From the beginning.
    expect([elements.play!.textContent, ...told()]).toEqual(['Pause', '0 of 2', 'left', '1', '0'])
    for (const step of [1, 2, 2]) {
      expect(beat.delay).toBe(70)
      beat.call!()
      isShown(step)
    }
    expect([elements.play!.textContent, beat.call]).toEqual(['Play', null])
    elements.back!.onclick()
    isShown(1)
    elements.input!.value = '0'
    elements.input!.oninput()
    isShown(0)
  })

  test.each([
    [['replay', 'line', `trust=${LINE}`], /environment LineWorld-v0: got no draw, and observations that are not grids/],
    [['replay', 'game', 'out=game.png'], /out: got game\.png, expected a name that ends in \.gif or \.html/],
    [['replay', 'game', 'delay=3'], /key: got "delay"/],
    [['replay', 'nowhere'], /nowhere: got no such folder, expected a run folder/],
  ])('%j is refused, and nothing is written', async (words, message) => {
    const { code, stderr } = await inProcess(words, here)
    expect(code).toBe(1)
    expect(stderr).toMatch(message)
    await expect(stat(join(here, 'line/replay.gif'))).rejects.toThrow('ENOENT')
  })
})

test('a terminal is told to draw one picture over the other', () => {
  const picture = (...fields: number[]) => ({ rows: 2, columns: 1, fields: Uint8Array.from(fields) })
  const [first, second] = terminalTexts([picture(0, 1), picture(1, 0)])
  const [ground, mark] = ['\x1b[48;2;24;26;32m  \x1b[0m\n', '\x1b[48;2;86;180;233m  \x1b[0m\n']
  expect(first).toBe(ground + mark)
  expect(second).toBe(`\x1b[2A${mark}${ground}`)
})
