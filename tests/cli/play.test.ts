/** Packed policies, and `colonnade play`, which shows one. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import { packPolicy } from '../../src/entries/data.ts'
import { evaluate, loadPolicy, resumeRun } from '../../src/index.ts'
import { inProcess, MAIN, SMALL, start } from '../support/command.ts'
import { contents, temporaryFolder } from '../support/temporary.ts'

let here: string
beforeAll(async () => {
  here = await temporaryFolder()
})

describe('a packed policy', () => {
  test('plays as its run does, has no state but weights, and does not change the run', async () => {
    const run = join(here, 'pole')
    expect((await inProcess(['train', 'CartPole-v1', 'out=pole', ...SMALL, '--quiet'], here)).code).toBe(0)
    const before = await contents(run)
    const packed = await packPolicy(run, join(here, 'packed'))
    expect(await contents(run)).toEqual(before)
    const judged = async (folder: string) => evaluate({ ...(await loadPolicy(folder)), episodes: 20, seed: 1 })
    expect(await judged(packed.folder)).toEqual(await judged(run))
    const { weights, update } = await loadPolicy(packed.folder)
    expect(update).toBe(packed.update)
    const bytes = Object.values(await contents(packed.folder)).reduce((sum, text) => sum + text.length * 0.75, 0)
    expect(bytes).toBeLessThan(weights.byteLength + 8000)
    const half = await packPolicy(run, join(here, 'half'), { type: 'F16' })
    const rounded = (await loadPolicy(half.folder)).weights
    expect(Math.max(...rounded.map((value, i) => Math.abs(value - weights[i]!)))).toBeLessThan(1e-3)
    expect(rounded).not.toEqual(weights)
    await expect(resumeRun(packed.folder)).rejects.toThrow(/no tensor/)
    await expect(packPolicy(run, packed.folder)).rejects.toThrow('with files, expected a new folder')
    const again = await inProcess(['replay', 'packed', 'out=packed.gif'], here)
    expect(again.stdout).toBe((await inProcess(['replay', 'pole', 'out=packed.gif'], here)).stdout)
  })
})

describe('colonnade play', () => {
  test('shows the policy of the package, which balances the pole, as a page', async () => {
    const { code, stdout, stderr } = await inProcess(['play', 'CartPole-v1'], here)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toMatch(/^500 steps of update \d+, return 500 → CartPole-v1\.html\n$/)
    expect(await readFile(join(here, 'CartPole-v1.html'), 'utf8')).toContain('<canvas')
  })

  test('trains for seconds where none is packed, and leaves no run', async () => {
    const temporary = await temporaryFolder()
    vi.stubEnv('TMPDIR', temporary)
    const words = ['play', 'Reacher-v5', 'out=reacher.gif', 'seconds=0.1', '--json']
    const { code, stdout, stderr } = await inProcess(words, here)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(JSON.parse(stdout)).toMatchObject({ environment: 'Reacher-v5', run: null, steps: 50 })
    vi.unstubAllEnvs()
    expect(await readdir(temporary)).toEqual([])
    expect(Object.keys(await contents(here)).filter((name) => name.startsWith('runs'))).toEqual([])
  })

  test('leaves no run at a signal', async () => {
    const temporary = await temporaryFolder()
    const options = { cwd: here, env: { ...process.env, TMPDIR: temporary } }
    const { process: child, ended } = start(process.execPath, [MAIN, 'play', 'Reacher-v5', 'seconds=600'], options)
    await expect.poll(() => contents(temporary).then(Object.keys), { timeout: 20_000 }).not.toEqual([])
    child.kill('SIGINT')
    expect(await ended).toMatchObject({ code: 130 })
    expect(await readdir(temporary)).toEqual([])
  })

  test('refuses a language model and unknown environments in one line', async () => {
    const said = async (...words: string[]) => (await inProcess(['play', ...words], here)).stderr
    expect(await said('text/reverse')).toBe(
      'colonnade: environment: got text/reverse, of a language model, expected an environment whose lanes step\n',
    )
    expect(await said('CartPol-v1')).toMatch(
      /^colonnade: environment: got "CartPol-v1" \(did you mean "CartPole-v1"\?\), expected one of/,
    )
    expect(await said('CartPole-v1', 'out=x.mp4')).toContain('expected a name that ends in .gif or .html')
  })
})
