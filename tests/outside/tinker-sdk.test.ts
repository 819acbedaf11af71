/**
 * Tinker's own SDK, and its cookbook's recipes, against the training service of `colonnade serve … tinker=true`; torch beside it. The
 * programs are installed once, pinned.
 */
import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, test } from 'vitest'
import { Random } from '../../src/base/random.ts'
import { cached, type Run } from '../support/cache.ts'
import { MAIN, start } from '../support/command.ts'
import { freePort } from '../support/programs.ts'
import { writeQwen3 } from '../support/qwen3-folder.ts'
import { findPython312 } from '../support/skyrl.ts'
import { temporaryFolder } from '../support/temporary.ts'

const PACKAGES = [
  ...['tinker==0.38.0', 'tinker-cookbook==0.5.8', 'torch==2.15.0', 'transformers==5.5.4'],
  ...['sympy', 'pylatexenc', 'math-verify'],
]
const HOUR_MS = 3_600_000
const KILLS = 20
const scripts = fileURLToPath(new URL('./tinker/', import.meta.url))

let python = ''
let model = ''
beforeAll(async () => {
  const make = async (folder: string, run: Run) => {
    await run(await findPython312(), ['-m', 'venv', '.'])
    await run(join(folder, 'bin/python'), ['-m', 'pip', 'install', '--quiet', ...PACKAGES])
  }
  const made = await cached('tinker-0.38.0', make, HOUR_MS)
  if ('why' in made) throw new Error(made.why)
  python = join(made.folder, 'bin/python')
  model = await temporaryFolder()
  const heads = { num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16 }
  const shape = { ...heads, hidden_size: 64, intermediate_size: 128 }
  await writeQwen3(model, { context: 512, shape, embeddingScale: 6 })
}, HOUR_MS)

/** A service on a port of its own, as the command line starts it. */
async function serve(folder: string, port: number) {
  const words = ['serve', model, 'tinker=true', `port=${port}`, `folder=${folder}`]
  const server = spawn(process.execPath, [MAIN, ...words], { stdio: ['ignore', 'pipe', 'inherit'] })
  await new Promise<void>((resolve, reject) => {
    server.once('exit', (code) => reject(new Error(`the service ended with ${code}`)))
    createInterface(server.stdout).once('line', () => resolve())
  })
  const url = `http://127.0.0.1:${port}`
  const kill = () =>
    new Promise<void>((resolve) => {
      server.removeAllListeners('exit')
      server.once('exit', () => resolve())
      server.kill('SIGKILL')
    })
  return { url, kill }
}

const offline = { HF_HUB_OFFLINE: '1', TOKENIZERS_PARALLELISM: 'false', TINKER_TELEMETRY: '0' }

async function script(name: string, ...words: string[]): Promise<string> {
  const run = start(python, [join(scripts, name), ...words], { timeout: 0, env: { ...process.env, ...offline } })
  const { code, stdout, stderr } = await run.ended
  if (code !== 0) throw new Error(`${name} ended with ${code}: ${stderr.slice(-3000)}`)
  return stdout
}

describe("Tinker's SDK", { timeout: HOUR_MS }, () => {
  test('gets the losses, gradients, weights and log-probabilities that torch has', async () => {
    const folder = await temporaryFolder()
    const server = await serve(folder, await freePort())
    const worst = JSON.parse(await script('losses.py', server.url, model, folder))
    await server.kill()
    expect(Object.keys(worst)).toEqual(['logprob', 'loss', 'gradient norm', 'weights', 'sampled'])
    for (const [what, difference] of Object.entries(worst)) expect(difference, what).toBeLessThan(1e-5)
  })

  test.each([
    ['sl', 'train_mean_nll', -0.5],
    ['rl', 'reward/total', 0.25],
  ] as const)('runs the recipe %s of the cookbook, which learns', async (which, metric, gain) => {
    const [folder, logs] = [await temporaryFolder(), await temporaryFolder()]
    const server = await serve(folder, await freePort())
    await script('recipes.py', server.url, model, logs, which)
    await server.kill()
    const lines = (await readFile(join(logs, which, 'metrics.jsonl'), 'utf8')).trim().split('\n')
    const values = lines.map((line) => (JSON.parse(line) as Record<string, number>)[metric]!)
    const mean = (part: number[]) => part.reduce((a, b) => a + b, 0) / part.length
    const change = mean(values.slice(-3)) - mean(values.slice(0, 3))
    expect(change / gain).toBeGreaterThan(1)
  })

  test(`goes on after ${KILLS} kills of the service with two clients as if there had been none`, async () => {
    const random = new Random(11)
    const steps = 120
    const train = async (kills: number) => {
      const [folder, port] = [await temporaryFolder(), await freePort()]
      let server = await serve(folder, port)
      let [left, next, seen, restarting] = [kills, 2, 0, Promise.resolve()]
      const onStep = () => {
        if (left === 0 || ++seen < next) return
        random.draw(1, 0, 0, left--)
        ;[seen, next] = [0, 1 + Math.floor(random.uniform(0) * 5)]
        restarting = restarting.then(async () => {
          await server.kill()
          server = await serve(folder, port)
        })
      }
      const client = async (seed: number) => {
        const words = [join(scripts, 'kills.py'), server.url, model, String(steps), String(seed)]
        const child = spawn(python, words, { stdio: ['ignore', 'pipe', 'ignore'], env: { ...process.env, ...offline } })
        const lines: string[] = []
        for await (const line of createInterface(child.stdout)) {
          lines.push(line)
          if (line.startsWith('step') && seed === 1) onStep()
        }
        return lines
      }
      const told = await Promise.all([client(1), client(2)])
      await restarting
      await server.kill()
      return { losses: told.map((lines) => lines.filter((line) => line.startsWith('step'))), left, told }
    }
    const undisturbed = await train(0)
    const killed = await train(KILLS)
    expect(killed.left).toBe(0)
    expect(undisturbed.losses.map(({ length }) => length)).toEqual([steps, steps])
    expect(killed.losses).toEqual(undisturbed.losses)
    expect(killed.told[0]!.filter((line) => line.startsWith('again')).length).toBeGreaterThan(KILLS / 2)
  })
})
