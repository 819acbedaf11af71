/**
 * The pond of examples/pond in Chromium: fish learn from the game as it is played, and the page shows them. Asked by `npm run test:page` alone.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Browser, openChromium, until } from '../support/chromium.ts'
import { skipLoudly } from '../support/command.ts'
import type { Served } from '../support/isolated.ts'
import { servePond } from '../support/pond.ts'

let why = ''
let browser: Browser | undefined
let served: Served | undefined

beforeAll(async () => {
  if (import.meta.env.MODE !== 'page') {
    why = 'the pond in Chromium (npm run test:page asks it)'
    return
  }
  const opened = await openChromium(['--use-angle=swiftshader', '--enable-unsafe-swiftshader'])
  const pond = await servePond()
  if ('why' in opened || 'why' in pond) {
    why = [opened, pond].flatMap((each) => ('why' in each ? [each.why] : [])).join('; ')
    if ('browser' in opened) await opened.browser.close()
    return
  }
  ;({ browser } = opened)
  served = pond
}, 300_000)

afterAll(async () => {
  await browser?.close()
  served?.close()
})

const number = (id: string) => `Number(document.getElementById('${id}').textContent.replaceAll(',', ''))`

test('fish learn while they are seen, faster while time flies, and a person steers the pike', async (context) => {
  if (why !== '') skipLoudly(context, why)
  const page = await browser!.newPage({ viewport: { width: 960, height: 640 } })
  const wrong: string[] = []
  page.on('pageerror', (error) => wrong.push(String(error)))
  await page.goto(served!.address)
  await until(page, `${number('steps')} > 0 && ${number('eaten')} > 0`)
  const first = await page.evaluate<number>(number('eaten'))
  // A pike that is turned in one direction swims in a circle: for some seconds nobody beyond it is caught.
  const places = `(async () => {
    const places = []
    for (let i = 0; i < 40; i++) {
      places.push([...globalThis.pikeAt()])
      await new Promise(requestAnimationFrame)
    }
    return places
  })()`
  await page.keyboard.down('ArrowLeft')
  await page.evaluate('new Promise((resolve) => setTimeout(resolve, 3000))')
  const circle = await page.evaluate<[number, number][]>(places)
  await page.keyboard.up('ArrowLeft')
  const across = (i: 0 | 1) =>
    Math.max(...circle.map((place) => place[i])) - Math.min(...circle.map((place) => place[i]))
  expect(Math.max(across(0), across(1))).toBeLessThan(0.25)
  await page.keyboard.down('t')
  await until(page, `${number('steps')} > 400000`)
  await page.keyboard.up('t')
  await page.evaluate('new Promise((resolve) => setTimeout(resolve, 12_000))')
  const last = await page.evaluate<number>(number('eaten'))
  console.log(`algae a fish ate in 10 s: ${first} at first, ${last} at last`)
  expect(last).toBeGreaterThan(1.5 * first)
  expect(wrong).toEqual([])
}, 300_000)
