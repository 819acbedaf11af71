/** Processes of fleets by the command line, which run a copy of the package beside the client's packages. */
import { type ChildProcess, spawn } from 'node:child_process'
import { cp, mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import { type NatsServer, natsFolder } from './fleet-carriers.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

export interface Program {
  readonly child: ChildProcess
  readonly text: () => string
  readonly ended: Promise<number | null>
}

/** Copies what is built under this name beside the client's packages, and returns the copy's folder. */
export async function copyPackage(name: string): Promise<string> {
  const own = join(natsFolder, 'node_modules', name)
  await rm(own, { recursive: true, force: true })
  await mkdir(own, { recursive: true })
  await cp(join(root, 'dist/src'), join(own, 'dist/src'), { recursive: true })
  await cp(join(root, 'package.json'), join(own, 'package.json'))
  return own
}

/** Starts commands of a package's copy in a folder. */
export class Programs {
  readonly #main: string
  readonly #folder: string
  readonly #alive = new Set<Program>()

  constructor(own: string, folder: string) {
    this.#main = join(own, 'dist/src/cli/main.js')
    this.#folder = folder
  }

  /** The first word may be another program of Node. */
  readonly start = (...words: string[]): Program => {
    const program = words[0]!.endsWith('main.js') ? words : [this.#main, ...words]
    const child = spawn(process.execPath, program, { cwd: this.#folder, stdio: ['ignore', 'pipe', 'pipe'] })
    let text = ''
    for (const stream of [child.stdout, child.stderr]) stream!.on('data', (chunk) => (text += chunk))
    const ended = new Promise<number | null>((resolve) => child.once('exit', resolve))
    const started = { child, text: () => text, ended }
    this.#alive.add(started)
    void ended.then(() => this.#alive.delete(started))
    return started
  }

  readonly run = async (...words: string[]) => {
    const program = this.start(...words)
    const code = await program.ended
    return { code, text: program.text() }
  }

  /**
   * Trains by these words with a fleet of three actors, and kills actors (at most 12), the learner (5) and the broker (2) by −9 at random
   * until it has ended. Returns how often.
   */
  async survive(nats: NatsServer, address: string, out: string, train: readonly string[], draw: () => number) {
    const join = () => this.start('actor', address, 'stay=true')
    const actors = [1, 2, 3].map(join)
    let learner = this.start('train', ...train, `out=${out}`)
    const kills = { actors: 0, learner: 0, broker: 0 }
    for (let code: number | null | undefined; code !== 0; ) {
      code = await Promise.race([learner.ended, sleep(300 + 1500 * draw()).then(() => undefined)])
      if (code === 0) break
      expect(code, learner.text()).toBeUndefined()
      const chance = draw()
      if (chance < 0.6 && kills.actors < 12) {
        const i = Math.floor(draw() * actors.length)
        actors[i]!.child.kill('SIGKILL')
        actors[i] = join()
        kills.actors++
      } else if (chance < 0.85 && kills.learner < 5) {
        learner.child.kill('SIGKILL')
        await learner.ended
        const files = await readdir(`${this.#folder}/${out}`).catch(() => [] as string[])
        const again = files.includes('config.json') ? ['resume', out, '--quiet'] : ['train', ...train, `out=${out}`]
        learner = this.start(...again)
        kills.learner++
      } else if (kills.broker < 2) {
        await nats.restart('SIGKILL')
        kills.broker++
      }
    }
    await this.run('fleet', address, 'order=drain')
    for (const actor of actors) expect(await actor.ended, actor.text()).toBe(0)
    expect(kills.actors).toBeGreaterThan(2)
    expect(kills.learner).toBeGreaterThan(0)
    return kills
  }

  /**
   * Trains by these words with a fleet of one actor and two helpers of its gradients, and kills helpers (at most 6) and the learner (2) by −9
   * at random until it has ended. Returns what `colonnade fleet` showed of helpers.
   */
  async help(address: string, out: string, train: readonly string[], draw: () => number) {
    const actor = this.start('actor', address)
    const join = () => this.start('actor', address, 'role=learn')
    const helpers = [join(), join()]
    let learner = this.start('train', ...train, `out=${out}`)
    const kills = { helpers: 0, learner: 0 }
    const shown: { host: string; failures: number; lastError: string }[] = []
    for (let code: number | null | undefined; code !== 0; ) {
      code = await Promise.race([learner.ended, sleep(1000 + 1500 * draw()).then(() => undefined)])
      if (code === 0) break
      expect(code, learner.text()).toBeUndefined()
      const state = await this.run('fleet', address, '--json')
      if (state.code === 0) shown.push(...JSON.parse(state.text).helpers) // Before the learner has begun there is none.
      const files = await readdir(`${this.#folder}/${out}`).catch(() => [] as string[])
      if (draw() < 0.7 && kills.helpers < 6) {
        const i = Math.floor(draw() * helpers.length)
        helpers[i]!.child.kill('SIGKILL')
        helpers[i] = join()
        kills.helpers++
      } else if (kills.learner < 2 && files.includes('config.json')) {
        learner.child.kill('SIGKILL')
        await learner.ended
        learner = this.start('resume', out, '--quiet')
        kills.learner++
      }
    }
    for (const each of [actor, ...helpers]) expect(await each.ended, each.text()).toBe(0)
    expect(shown.length).toBeGreaterThan(0)
    expect(shown.every(({ host, failures, lastError }) => host !== '' && failures === 0 && lastError === '')).toBe(true)
    expect(helpers.map(({ text }) => Number(/(\d+) shares/.exec(text())?.[1]))).not.toContain(0)
    expect(kills.helpers).toBeGreaterThan(1)
    return kills
  }

  end(): void {
    for (const { child } of this.#alive) child.kill('SIGKILL')
  }
}
