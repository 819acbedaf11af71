/** The page as the command line serves it. */
import { createServer } from 'node:net'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { inProcess, MAIN, SMALL, start } from '../../support/command.ts'
import { writeRun } from '../../support/run-folders.ts'
import { temporaryFolder } from '../../support/temporary.ts'

let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
  for (const name of ['first', 'second']) await writeRun(join(folder, name))
})

describe('the command', () => {
  test('serves a folder until it is stopped; at a port that is taken it says so', async () => {
    const { process: served, ended, printed } = start(process.execPath, [MAIN, 'dashboard', folder, 'port=0'])
    let said = ''
    served.stdout!.on('data', (text: string) => {
      said += text
    })
    await printed('Ctrl-C stops it')
    const [, url] = /^2 runs of .* at (http:\S+); /.exec(said)!
    expect((await fetch(url!)).status).toBe(200)
    const refused = await inProcess(['dashboard', folder, `port=${new URL(url!).port}`])
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringMatching(/^colonnade: port: got 127.0.0.1:/) })
    served.kill('SIGINT')
    expect((await ended).code).toBe(130)
  })

  test('train … dashboard=true says where the page is, and ends with the training', async () => {
    const here = await temporaryFolder()
    const words = ['train', 'CartPole-v1', 'out=all/run', 'dashboard=true', ...SMALL, 'threads=1']
    // Where its usual port is taken, as by another training, it is at another.
    const taken = createServer()
    await new Promise((resolve) => taken.once('error', resolve).listen(6060, '127.0.0.1', () => resolve(null)))
    const { code, stderr } = await inProcess(words, here)
    taken.close()
    expect(code).toBe(0)
    expect(stderr).toMatch(/127\.0\.0\.1:(?!6060 )\d+ shows it while it trains; later: colonnade dashboard all\n/)
    const { code: wrong, stderr: why } = await inProcess(['train', 'CartPole-v1', 'dashboard=yes'], here)
    expect([wrong, why]).toEqual([1, 'colonnade: dashboard: got "yes", expected true or false\n'])
  })
})
