/**
 * A recorded session of the playground and a picture of the pond for the docs: `npm run playground:pictures` makes them anew, in about
 * two minutes. The session is a GIF, whose pictures follow each other faster than they came.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { cached, installPackages } from '../support/cache.ts'
import { type Browser, openChromium, type Page, until } from '../support/chromium.ts'
import { skipLoudly } from '../support/command.ts'
import type { Served } from '../support/isolated.ts'
import { servePlayground } from '../support/playground.ts'
import { servePond } from '../support/pond.ts'
import { temporaryFolder } from '../support/temporary.ts'

const DOCS = new URL('../../docs/page/', import.meta.url).pathname
const GIFENC = 'gifenc@1.0.3'
/** Pixels of the session's pictures: half of the page's. */
const [WIDTH, HEIGHT] = [640, 400]
const [PICTURES, DELAY_MS] = [40, 120]
/** Colors of a picture, without the one that stands for what has not changed. */
const COLORS = 63
/** Kilobytes of a file in the docs. */
const KILOBYTES_MAX = 1000

/** The parts of gifenc that are used. */
interface Gifenc {
  quantize(pixels: Uint8Array, colors: number): number[][]
  applyPalette(pixels: Uint8Array, palette: number[][]): Uint8Array
  GIFEncoder(): {
    writeFrame(pixels: Uint8Array, width: number, height: number, options: object): void
    finish(): void
    bytes(): Uint8Array
  }
}

let why = ''
let browser: Browser | undefined
let gifenc: Gifenc
const served: Served[] = []

beforeAll(async () => {
  if (import.meta.env.MODE !== 'playground-pictures') {
    why = 'pictures of the playground and the pond (npm run playground:pictures makes them)'
    return
  }
  const made = await cached(GIFENC, (path, run) => installPackages(path, run, [GIFENC]))
  const opened = await openChromium(['--use-angle=swiftshader', '--enable-unsafe-swiftshader'])
  if ('why' in opened || 'why' in made) {
    why = [opened, made].flatMap((each) => ('why' in each ? [each.why] : [])).join('; ')
    return
  }
  ;({ browser } = opened)
  gifenc = createRequire(join(made.folder, 'package.json'))('gifenc') as Gifenc
}, 300_000)

afterAll(async () => {
  await browser?.close()
  for (const each of served) each.close()
})

/** The pixels of a PNG file, at the size of the session's pictures. */
const pixelsOf = async (decoder: Page, png: Buffer) =>
  Buffer.from(
    await decoder.evaluate<string>(`(async () => {
      const image = new Image()
      image.src = 'data:image/png;base64,${png.toString('base64')}'
      await image.decode()
      const canvas = document.createElement('canvas')
      canvas.width = ${WIDTH}
      canvas.height = ${HEIGHT}
      const pen = canvas.getContext('2d')
      pen.imageSmoothingQuality = 'high'
      pen.drawImage(image, 0, 0, ${WIDTH}, ${HEIGHT})
      const { data } = pen.getImageData(0, 0, ${WIDTH}, ${HEIGHT})
      let text = ''
      for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192))
      return btoa(text)
    })()`),
    'base64',
  )

test('records a session of the playground', async (context) => {
  if (why !== '') skipLoudly(context, why)
  served.push(await servePlayground())
  const page = await browser!.newPage({ viewport: { width: 2 * WIDTH, height: 2 * HEIGHT } })
  await page.goto(served.at(-1)!.address)
  await until(page, "document.querySelector('#did').textContent !== ''")
  const path = join(await temporaryFolder(), 'picture.png')
  const pictures: Buffer[] = []
  const shoot = async () => {
    await page.screenshot({ path })
    pictures.push(readFileSync(path))
  }
  await shoot()
  // It rests while a picture is taken, which would make frames late.
  for (let i = 0; i < PICTURES - 1; i++) {
    await page.keyboard.press('Space')
    await page.evaluate('new Promise((resolve) => setTimeout(resolve, 150))')
    await page.keyboard.press('Space')
    await page.evaluate('new Promise((resolve) => setTimeout(resolve, 150))') // Figures are shown.
    await shoot()
  }
  const decoder = await browser!.newPage()
  const whole: Uint8Array[] = []
  for (const png of pictures) whole.push(new Uint8Array(await pixelsOf(decoder, png)))
  // One palette, so that what has not changed keeps its color.
  const palette = gifenc.quantize(Uint8Array.from([...whole[0]!, ...whole.at(-1)!]), COLORS)
  const transparentIndex = palette.length
  const gif = gifenc.GIFEncoder()
  let before: Uint8Array | undefined
  for (const pixels of whole) {
    const indices = gifenc.applyPalette(pixels, palette)
    const changed = indices.map((index, i) => (before?.[i] === index ? transparentIndex : index))
    const first = before === undefined ? { palette: [...palette, [0, 0, 0]] } : {}
    gif.writeFrame(changed, WIDTH, HEIGHT, {
      ...first,
      delay: DELAY_MS,
      transparent: true,
      transparentIndex,
      dispose: 1,
    })
    before = indices
  }
  gif.finish()
  const bytes = gif.bytes()
  console.log(`docs/page/playground.gif: ${Math.round(bytes.length / 1000)} kB`)
  expect(bytes.length / 1000).toBeLessThan(KILOBYTES_MAX)
  writeFileSync(join(DOCS, 'playground.gif'), bytes)
}, 300_000)

test('makes a picture of the pond', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const pond = await servePond()
  if ('why' in pond) return skipLoudly(context, pond.why)
  served.push(pond)
  const page = await browser!.newPage({ viewport: { width: 960, height: 640 } })
  await page.goto(pond.address)
  await page.keyboard.down('t')
  await until(page, "Number(document.getElementById('steps').textContent.replaceAll(',', '')) > 400000")
  await page.keyboard.up('t')
  await page.evaluate('new Promise((resolve) => setTimeout(resolve, 12_000))')
  await page.screenshot({ path: join(DOCS, 'pond.png') })
}, 300_000)
