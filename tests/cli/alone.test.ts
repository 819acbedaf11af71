/** What a training does when nobody is there any more: its terminal is closed, its reader is gone, the disk of its output is full. */
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { beforeEach, describe, expect, test } from 'vitest'
import { colonnade, MAIN, skipLoudly, start } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

let here: string
beforeEach(async () => {
  here = await temporaryFolder()
})

/** Long enough to be met at work. */
const words = [
  'train',
  'CartPole-v1',
  'out=run',
  'totalSteps=200000',
  'ppo.updateEpochs=1',
  'threads=1',
  'mlp.hidden=8',
]
const command = `'${process.execPath}' '${MAIN}'`

const log = () => readFile(join(here, 'run', 'run.log'), 'utf8')
const status = async () => JSON.parse(await readFile(join(here, 'run', 'summary.json'), 'utf8')).status

/** What a shell says of a script, in which the command line is `$0`. */
async function shell(script: string) {
  return start('bash', ['-c', script.replaceAll('$0', command)], { cwd: here }).ended
}

describe('a training', () => {
  test('goes on when its terminal hangs up, and says so in run.log', async () => {
    const { process: child, ended, printed } = start(process.execPath, [MAIN, ...words], { cwd: here })
    await printed('folder     run\n')
    child.kill('SIGHUP')
    expect((await ended).code).toBe(0)
    expect(await status()).toBe('complete')
    expect(await log()).toContain(
      `process ${child.pid}: SIGHUP: the terminal is closed; the training continues (to end it: kill ${child.pid})`,
    )
  })

  test('goes on when its terminal is gone for good', async (context) => {
    const shown = `${command} ${words.join(' ')}`
    const terminal = start('script', ['-qfec', shown, '/dev/null'], { cwd: here, detached: true })
    await terminal.printed('folder').catch((cause) => skipLoudly(context, `no script (${cause.message})`))
    if (!existsSync(join(here, 'run'))) skipLoudly(context, 'script makes no terminal here')
    terminal.process.kill('SIGKILL')
    await terminal.ended
    while (!existsSync(join(here, 'run', 'summary.json'))) await pause(20)
    expect(await status()).toBe('complete')
    while (!(await log()).includes('standard output')) await pause(20) // Its last words.
    expect(await log()).toMatch(/standard (error|output) cannot be written \(EIO\): its output is lost/)
  })

  test('goes on when nobody reads what it says; a result that is lost is no success', async () => {
    await shell(`{ $0 ${words.join(' ')}; echo $? > code; } 2>&1 | head -n 1`)
    while (!existsSync(join(here, 'code'))) await pause(20)
    expect(await readFile(join(here, 'code'), 'utf8')).toBe('1\n')
    expect(await status()).toBe('complete')
    for (const name of ['standard error', 'standard output']) {
      expect(await log()).toContain(`${name} cannot be written (EPIPE): its output is lost`)
    }
  })

  test('keeps its folder to itself: a second process is told who trains in it', async () => {
    const { process: child, ended, printed } = start(process.execPath, [MAIN, ...words], { cwd: here })
    await printed('folder     run\n')
    const { code, stderr } = await colonnade(['resume', 'run'], here)
    expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringContaining(`process ${child.pid} on `) })
    expect((await ended).code).toBe(0)
    expect((await colonnade(['resume', 'run'], here)).code).toBe(0)
  })

  test('that is told to end says in run.log who told it', async () => {
    const { process: child, ended, printed } = start(process.execPath, [MAIN, ...words], { cwd: here })
    await printed('folder     run\n')
    child.kill('SIGTERM')
    expect((await ended).code).toBe(143)
    expect(await status()).toBe('interrupted')
    expect(await log()).toContain('SIGTERM: ends after this update, with a checkpoint')
  })
})

describe('a result that is lost', () => {
  test.each(['environments', 'environments --json', '--help', '--version'])(
    'is no success: %s > /dev/full',
    async (line) => {
      const { code, stderr } = await shell(`$0 ${line} > /dev/full`)
      const said = 'colonnade: standard output cannot be written (ENOSPC): its output is lost\n'
      expect({ code, stderr }).toEqual({ code: 1, stderr: said })
    },
  )

  test('is no success when its reader is gone, and one that nobody was to read is', async () => {
    expect((await shell('set -o pipefail; { sleep 0.5; $0 environments; } | true')).code).toBe(1)
    expect((await shell('$0 environments 2> /dev/full')).code).toBe(0)
    expect((await colonnade(['environments'])).code).toBe(0)
  })
})
