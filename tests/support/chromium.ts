/** An installed Chromium (COLONNADE_CHROMIUM, or chromium on the path), driven by playwright-core. */
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { cached, installPackages } from './cache.ts'
import { attempt } from './python.ts'

const PACKAGES = ['playwright-core@1.65.1', 'axe-core@4.14.1']

/** The parts of playwright-core's page that tests use. */
export interface Page {
  on(event: string, listener: (what: { url(): string; message(): string; dismiss(): Promise<void> }) => void): void
  addInitScript(script: string): Promise<void>
  goto(url: string): Promise<unknown>
  waitForEvent(event: 'download'): Promise<{ path(): Promise<string> }>
  evaluate<T>(script: string): Promise<T>
  keyboard: { press(key: string): Promise<void>; down(key: string): Promise<void>; up(key: string): Promise<void> }
  mouse: { move(x: number, y: number): Promise<void>; down(): Promise<void>; up(): Promise<void> }
  focus(selector: string): Promise<void>
  setViewportSize(size: { width: number; height: number }): Promise<void>
  emulateMedia(media: { colorScheme: 'light' | 'dark' }): Promise<void>
  screenshot(options: { path: string; fullPage?: boolean; clip?: object }): Promise<unknown>
  close(): Promise<void>
}

export interface Browser {
  newPage(options?: { viewport: { width: number; height: number } }): Promise<Page>
  version(): string
  close(): Promise<void>
}

/** Starts a browser with these flags, and loads axe's script; or returns why that is impossible. */
export async function openChromium(
  words: readonly string[] = [],
): Promise<{ browser: Browser; axe: string } | { why: string }> {
  const executablePath = process.env.COLONNADE_CHROMIUM ?? (await attempt('which', ['chromium'])).stdout.trim()
  if (executablePath === '') return { why: 'Chromium (there is none; COLONNADE_CHROMIUM names one)' }
  const made = await cached(PACKAGES.join('-'), (path, run) => installPackages(path, run, PACKAGES))
  if ('why' in made) return made
  const require = createRequire(join(made.folder, 'package.json'))
  const browser = await require('playwright-core').chromium.launch({ executablePath, args: ['--no-sandbox', ...words] })
  return { browser, axe: require.resolve('axe-core/axe.min.js') }
}

/** Waits until the condition holds, checked per frame: the page's policy forbids playwright's own way. */
export async function until(page: Page, script: string): Promise<void> {
  while (!(await page.evaluate(script))) await page.evaluate('new Promise(requestAnimationFrame)')
}
