import { existsSync } from 'node:fs'
import { cp, mkdir, readdir, readFile, rename, rm, utimes, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { disk } from '../../src/base/files/files.ts'
import { InputError, startRun } from '../../src/index.ts'
import { readCheckpoint } from '../../src/training/folder/checkpoint.ts'
import { asOwner, Ownership } from '../../src/training/folder/owner.ts'
import { start } from '../support/command.ts'
import { smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

let folder: string
beforeEach(async () => {
  folder = await temporaryFolder()
})

const program = fileURLToPath(new URL('../support/own-forever.mjs', import.meta.url))

/** A process that owns the folder, and what its claim says. */
async function stranger() {
  const { process: child, ended, printed } = start(process.execPath, [program, folder])
  await printed('owned')
  const claim = join(folder, (await readdir(folder)).find((name) => name.startsWith('.owner-'))!)
  const record = JSON.parse(await readFile(join(claim, 'owner.json'), 'utf8'))
  expect(record.pid).toBe(child.pid)
  const kill = async () => {
    child.kill('SIGKILL')
    await ended
    expect(existsSync(claim)).toBe(true)
  }
  const say = (changed: object) => writeFile(join(claim, 'owner.json'), JSON.stringify({ ...record, ...changed }))
  return { claim, record, kill, say }
}

async function expectTaken(): Promise<void> {
  const ownership = await Ownership.take(folder)
  await ownership.release()
  expect((await readdir(folder)).filter((name) => name.startsWith('.owner-'))).toEqual([])
}

describe('a run folder', () => {
  test('is one process’s; another is told whose, may read, and gets it at once when the owner was killed', async () => {
    await (await startRun(await smallRun(), join(folder, 'run'))).train()
    folder = join(folder, 'run')
    const { record, claim, kill } = await stranger()
    const taking = Ownership.take(folder)
    await expect(taking).rejects.toThrow(InputError)
    await expect(taking).rejects.toThrow(
      `folder: got ${folder}, which is in use by process ${record.pid} on ${record.host} since ${record.since}, expected a ` +
        `folder without a running training (if that process is gone: remove ${claim})`,
    )
    expect((await readCheckpoint(folder)).manifest.update).toBe(8)
    await expect(asOwner(folder, async () => 'written')).rejects.toThrow(`process ${record.pid}`)
    await kill()
    await expectTaken()
  })

  test('is its owner’s in another container too, whose process has our own number', async () => {
    const { kill, say } = await stranger()
    const here = await Ownership.take(await temporaryFolder())
    const started = (await readFile('/proc/self/stat', 'utf8')).split(') ').at(-1)!.split(' ')[19]
    await say({ pid: process.pid, pidSpace: 'pid:[1]', started })
    await expect(Ownership.take(folder)).rejects.toThrow(`process ${process.pid} on `)
    await kill()
    await expectTaken()
    await here.release()
  })

  test('goes by the number and start of the process where there are no sockets', async () => {
    const { kill, say, record, claim } = await stranger()
    await rename(join(claim, 'socket'), join(claim, 'gone'))
    await say({ hasSocket: false })
    await expect(Ownership.take(folder)).rejects.toThrow(`process ${record.pid} on `)
    await say({ hasSocket: false, started: '1' }) // Somebody else has the number now.
    await expectTaken()
    await kill().catch(() => undefined) // Its claim is gone.
  })

  test('goes by a heartbeat where the owner is on another machine', async () => {
    const { kill, say, record, claim } = await stranger()
    const elsewhere = { boot: 'another', machine: 'another', host: 'far', beatSeconds: 0.1 }
    await say(elsewhere)
    const beating = setInterval(() => void utimes(claim, new Date(), new Date()).catch(() => undefined), 20)
    await expect(Ownership.take(folder)).rejects.toThrow(`process ${record.pid} on far`)
    clearInterval(beating)
    await expectTaken()
    await kill().catch(() => undefined)
  })

  test('is nobody’s after the machine was started anew', async () => {
    const { say, kill } = await stranger()
    await say({ boot: 'the one before', beatSeconds: 1e6 })
    await expectTaken()
    await kill().catch(() => undefined)
  })

  test('is taken by one of many that begin at the same moment', async () => {
    for (let round = 0; round < 5; round++) {
      const tries = await Promise.allSettled(Array.from({ length: 6 }, () => Ownership.take(folder)))
      const owners = tries.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
      expect(owners).toHaveLength(1)
      await owners[0]!.release()
    }
  })

  test('is not kept by a claim that was never finished', async () => {
    await mkdir(join(folder, '.owner-0000000000000000'))
    await mkdir(join(folder, '.owner-0000000000000001'))
    await writeFile(join(folder, '.owner-0000000000000001', 'owner.json'), '{"pid": 47')
    await expectTaken()
  })

  test('waits for a claim that may still be written', async () => {
    const claim = join(folder, '.owner-0000000000000000')
    await mkdir(claim)
    const clock = vi.spyOn(performance, 'now').mockReturnValue(0)
    const read = vi.spyOn(disk, 'read')
    onTestFinished(() => void vi.restoreAllMocks())
    const looks = () => read.mock.calls.filter(([path]) => path.startsWith(claim)).length
    const looksAgain = (before = looks()) => vi.waitFor(() => expect(looks()).toBeGreaterThan(before + 1), 20_000)
    let isTaken = false
    const taking = Ownership.take(folder).finally(() => {
      isTaken = true
    })
    await looksAgain()
    clock.mockReturnValue(999)
    await looksAgain()
    expect([isTaken, existsSync(claim)]).toEqual([false, true])
    clock.mockReturnValue(1000)
    await (await taking).release()
    expect(existsSync(claim)).toBe(false)
  })

  test('goes by the socket, and not by a number that somebody else may have; who asked goes away again', async () => {
    const elsewhere = await temporaryFolder()
    const own = await Ownership.take(elsewhere)
    const [name] = await readdir(elsewhere)
    const gone: Promise<unknown>[] = []
    const server = createServer((socket) => {
      gone.push(new Promise((resolve) => socket.on('close', resolve).resume()))
    })
    const claim = join(folder, '.owner-0000000000000000')
    await mkdir(join(claim, 'held'), { recursive: true })
    await new Promise<void>((resolve) => server.listen(join(claim, 'socket'), resolve))
    await cp(join(elsewhere, name!, 'owner.json'), join(claim, 'owner.json'))
    await expect(Ownership.take(folder)).rejects.toThrow(`process ${process.pid} on `)
    expect(gone).toHaveLength(1)
    await gone[0]
    await new Promise((resolve) => server.close(resolve))
    await expectTaken() // Though this process, whose number the claim has, is alive.
    await own.release()
  })

  test('that another machine took is told at the next writing', async () => {
    const ownership = await Ownership.take(folder)
    await ownership.check()
    for (const name of await readdir(folder)) await rm(join(folder, name), { recursive: true })
    const { record, kill } = await stranger()
    await expect(ownership.check()).rejects.toThrow(
      `got a folder that was taken by process ${record.pid} on ${record.host}`,
    )
    await expect(asOwner(folder, async () => 'written')).rejects.toThrow('which showed no sign of life for a long time')
    await kill()
  })

  test('of a path that is too long for a socket has one all the same', async () => {
    folder = join(folder, 'long'.repeat(30), 'longer'.repeat(20))
    await mkdir(folder, { recursive: true })
    const { record, kill } = await stranger()
    expect(record.hasSocket).toBe(process.platform === 'linux')
    await expect(Ownership.take(folder)).rejects.toThrow(`process ${record.pid} on `)
    await kill()
    await expectTaken()
  })
})

test('the owner sweeps away what interrupted writing left, in every folder of the run, and nothing else', async () => {
  const kept = ['notes.1.tmp', 'checkpoints/00000003/x', 'rollouts/00000001.arrow', 'mine/a.1.tmp']
  const swept = [
    ...['config.json.7.tmp', 'summary.json.123.tmp', 'metrics.jsonl.1.tmp', 'model/model.safetensors.9.tmp'],
    ...['rollouts/00000002.arrow.9.tmp', 'trajectories/00000002.arrow.9.tmp', 'adapter/adapter_config.json.9.tmp'],
    ...['checkpoints/.00000004.9.tmp/columns.safetensors', 'checkpoints/.00000001.tmp/manifest.json'],
  ]
  for (const path of [...kept, ...swept]) {
    await mkdir(join(folder, path, '..'), { recursive: true })
    await writeFile(join(folder, path), 'x')
  }
  const { kill } = await stranger()
  expect(kept.filter((path) => !existsSync(join(folder, path)))).toEqual([])
  expect(swept.filter((path) => existsSync(join(folder, path)))).toEqual([])
  await writeFile(join(folder, 'summary.json.123.tmp'), 'still being written')
  await expect(Ownership.take(folder)).rejects.toThrow(InputError)
  expect(existsSync(join(folder, 'summary.json.123.tmp'))).toBe(true)
  await kill()
})
