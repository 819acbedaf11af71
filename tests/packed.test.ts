/** What somebody adds from outside, in a folder with nothing but the packed file: each thing one file, and a word that names it. */
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, test } from 'vitest'
import { temporaryFolder } from './support/temporary.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const { pack, install } = (await import(new URL('../scripts/packed.mjs', import.meta.url).href)) as {
  pack(folder: string, platforms?: readonly string[]): { tarball: string }
  install(folder: string, tarball: string): void
}
const { PLATFORMS, packageName } = (await import(new URL('../scripts/native-platforms.mjs', import.meta.url).href)) as {
  PLATFORMS: Readonly<Record<string, object>>
  packageName(platform: string): string
}

let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
  install(folder, pack(folder, Object.keys(PLATFORMS)).tarball)
}, 60_000)

const write = (name: string, text: string) => writeFileSync(join(folder, name), text)
const node = (...words: string[]) => execFileSync(process.execPath, words, { cwd: folder, encoding: 'utf8' })
const colonnade = (...words: string[]) => node('node_modules/colonnade/dist/src/cli/main.js', ...words)

/** What a program says on standard error that ends with an error. */
function failure(...words: string[]): string {
  const { status, stderr } = spawnSync(process.execPath, words, { cwd: folder, encoding: 'utf8' })
  expect(status).toBe(1)
  return stderr
}

describe('a mistake in a program', () => {
  const setUp = `createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4 })`

  test('is told in a line with the place in the program, and with none of the package', () => {
    write(
      'mistake.mjs',
      `import { cartPole, createTrainer, createWorld, mlp, ppo } from 'colonnade'
      const world = await ${setUp}
      for await (const _ of createTrainer(world, ppo()).updates({ totalSteps: -1 }));`,
    )
    write(
      'mistake.cjs',
      `const { cartPole, createTrainer, createWorld, mlp, ppo } = require('colonnade')
      const train = async () => createTrainer(await ${setUp}, ppo({ gamma: 2 }))
      train()`,
    )
    for (const [file, line, message] of [
      ['mistake.mjs', 3, 'InputError: totalSteps: got -1, expected a number ≥ 1\n'],
      ['mistake.cjs', 2, 'InputError: ppo.gamma: got 2, expected a number ≥ 0 and ≤ 1\n'],
    ] as const) {
      const said = failure(file)
      expect(said).toContain(message)
      expect(said.match(/^ +at .+$/gm)![0]).toContain(`${file}:${line}:`)
      expect(said).not.toContain('node_modules')
      expect(said).not.toContain('subject')
    }
  })

  test('in a thread names the line in the module that the thread ran', () => {
    write(
      'refusing.mjs',
      `import { isMainThread } from 'node:worker_threads'
      import { box, discrete, InputError } from 'colonnade'
      import { fromObjects } from 'colonnade/environments'
      class Lever {
        reset() { return { observation: [0] } }
        step() {
          if (!isMainThread) throw new InputError('lever', 'a pull', 'a push')
          return { observation: [0], reward: 0, terminated: false, truncated: false }
        }
      }
      const spaces = { observationSpace: box({ low: 0, high: 1, shape: [1] }), actionSpace: discrete(2) }
      export const refusing = fromObjects(() => new Lever(), { id: 'r', module: import.meta.url, ...spaces, maxEpisodeSteps: 9 })`,
    )
    write(
      'threads.mjs',
      `import { createTrainer, createWorld, mlp, ppo } from 'colonnade'
      import { refusing } from './refusing.mjs'
      const world = await createWorld({ environment: refusing(), policy: mlp({ hidden: [8] }), numLanes: 4 })
      const trainer = createTrainer(world, ppo({ numSteps: 16, numMinibatches: 1 }), { threads: 2 })
      for await (const _ of trainer.updates({ totalSteps: 64 }));`,
    )
    const said = failure('threads.mjs')
    expect(said).toContain('lever: got a pull, expected a push')
    expect(said).toContain('refusing.mjs:7:')
  })
})

describe('from outside the package', () => {
  test('a command is one module, named by its path', () => {
    write(
      'count.mjs',
      `import { defineCommand, integer, readKeys, splitWords } from 'colonnade/settings'
      export const count = defineCommand('count', async ({ words, json }) => {
        const { subject, texts } = splitWords(words, 'what is counted')
        const { from } = readKeys({ from: integer(0, 'where to begin') }, texts)
        if (!json) console.log(\`\${subject} from \${from}\`)
        return { subject, from }
      })`,
    )
    expect(colonnade('./count.mjs', 'lanes', 'from=3')).toBe('lanes from 3\n')
    expect(colonnade('./count.mjs', 'lanes', '--json')).toBe('{"subject":"lanes","from":0}\n')
  })

  test('a loss over tokens is one module, named by a key; the run keeps it and is evaluated with it', () => {
    write(
      'loss.mjs',
      `import { defineTokenLoss, tokenLossSettings } from 'colonnade/algorithms'
      import { number } from 'colonnade/settings'
      export const plainly = defineTokenLoss({
        id: 'plainly',
        settings: { ...tokenLossSettings(), factor: number(1, 'what the loss is multiplied by') },
        loss: ({ logprob, oldLogprob, advantage }, { factor }) =>
          ({ loss: logprob.minus(oldLogprob).exp().times(advantage).times(-factor) }),
      })`,
    )
    const shape = ['languageModel.width=8', 'languageModel.layers=1', 'languageModel.heads=2']
    const small = ['mode=rl', 'rl.updates=1', 'rl.groupsPerUpdate=2', 'rl.groupSize=4', 'numLanes=4', 'threads=2']
    const words = ['text/copy', ...shape, ...small, 'rl.loss=./loss.mjs', 'loss.factor=2', 'out=run', '--quiet']
    colonnade('train', ...words)
    const config = JSON.parse(readFileSync(join(folder, 'run/config.json'), 'utf8'))
    expect(config.rl.parameters).toMatchObject({ loss: 'plainly', lossSettings: { factor: 2 } })
    expect(config.rl.modules).toEqual({ loss: '../loss.mjs' })
    const { phase, gradNorm } = JSON.parse(readFileSync(join(folder, 'run/metrics.jsonl'), 'utf8').split('\n')[0]!)
    expect(phase).toBe('rl')
    expect(gradNorm).toBeGreaterThan(0)
    expect(JSON.parse(colonnade('resume', 'run', 'rl.updates=2', '--json', '--quiet'))).toMatchObject({ updates: 2 })
  })

  test('a kernel with a SIMD twin is one module beside what one’s own AssemblyScript makes, with the same bits in one thread and two', () => {
    write(
      'walk.simd.ts',
      `export function walk(position: usize, speed: usize, from: i32, to: i32): void {
        let n = from
        for (; n + 4 <= to; n += 4) {
          const at = position + (n << 2)
          v128.store(at, f32x4.add(v128.load(at), v128.load(speed + (n << 2))))
        }
        for (; n < to; n++) {
          const at = position + (n << 2)
          store<f32>(at, load<f32>(at) + load<f32>(speed + (n << 2)))
        }
      }`,
    )
    write(
      'walk.mjs',
      `import { box, defineEnvironment, discrete } from 'colonnade'
      import { defineKernels } from 'colonnade/kernels'
      export const called = { plain: 0, compiled: 0 }
      const own = defineKernels({
        plain: {
          walk(position, speed, from, to) {
            called.plain++
            for (let n = from; n < to; n++) position[n] += speed[n]
          },
        },
        compiled: new URL('./walk.wasm', import.meta.url),
        twins: (body, at) => ({
          walk(position, speed, from, to) {
            called.compiled++
            body.walk(at(position), at(speed), from, to)
          },
        }),
      })
      export const walk = defineEnvironment({
        id: 'Walk-v0',
        module: import.meta.url,
        settings: {},
        state: () => ({ position: 'f32', speed: 'f32' }),
        make: () => ({
          observationSpace: box({ low: -100, high: 100, shape: [1] }),
          actionSpace: discrete(2),
          maxEpisodeSteps: 8,
          returnThreshold: null,
          reset({ state, observation }, rows, count) {
            for (let i = 0; i < count; i++) observation[rows[i]] = state.position[rows[i]] = rows[i] / 8
          },
          step({ state, observation, action, reward, kernels }, from, to) {
            for (let n = from; n < to; n++) state.speed[n] = action[n] === 1 ? 0.1 : -0.3
            own(kernels).walk(state.position, state.speed, from, to)
            for (let n = from; n < to; n++) {
              observation[n] = state.position[n]
              reward[n] = -Math.abs(state.position[n])
            }
          },
        }),
      })`,
    )
    write(
      'main.mjs',
      `import { createHash } from 'node:crypto'
      import { createTrainer, createWorld, mlp, ppo } from 'colonnade'
      import { called, walk } from './walk.mjs'
      const train = async (kernels, threads) => {
        const world = await createWorld({ environment: walk(), policy: mlp({ hidden: [4] }), numLanes: 11, seed: 1, kernels })
        const trainer = createTrainer(world, ppo({ numSteps: 16, numMinibatches: 1 }), { threads })
        for await (const _ of trainer.updates({ totalSteps: 2 * 11 * 16 }));
        const positions = createHash('sha256').update(world.cohort().state.position).digest('hex')
        trainer.close?.()
        return positions
      }
      const results = {}
      for (const [kernels, threads] of [['plain', 1], ['simd', 1], ['simd', 2]]) {
        Object.assign(called, { plain: 0, compiled: 0 })
        const positions = await train(kernels, threads)
        results[kernels + threads] = { positions, plain: called.plain > 0, compiled: called.compiled > 0 }
      }
      console.log(JSON.stringify(results))`,
    )
    const build = ['-O3', '--noAssert', '--runtime', 'stub', '--importMemory', '--noExportMemory', '--enable', 'simd']
    const shared = ['--enable', 'threads', '--sharedMemory', '--initialMemory', '1', '--maximumMemory', '65536']
    const compiler = join(root, 'node_modules/assemblyscript/bin/asc.js')
    node(compiler, 'walk.simd.ts', '--outFile', 'walk.wasm', ...build, ...shared)
    const { plain1, simd1, simd2 } = JSON.parse(node('main.mjs'))
    expect([plain1.plain, plain1.compiled]).toEqual([true, false])
    expect([simd1.plain, simd1.compiled]).toEqual([false, true])
    expect(simd2).toEqual(simd1)
    expect(simd1.positions).toMatch(/^[0-9a-f]{64}$/)
    const words = ['totalSteps=256', 'numLanes=4', 'threads=2', 'ppo.numSteps=32', 'out=walked', '--quiet']
    expect(colonnade('train', './walk.mjs', ...words)).toContain('complete: 256 steps')
  })
})

describe('native kernels of a package', () => {
  const name = packageName(`${process.platform}-${process.arch}`)
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

  /** What is said of native kernels; `addon` is the text of a module in an addon's place. */
  function report(addon?: string, packaged = version, as = name) {
    const into = join(folder, 'node_modules', as)
    if (addon !== undefined) {
      mkdirSync(into)
      writeFileSync(join(into, 'package.json'), JSON.stringify({ name: as, version: packaged, main: 'addon.cjs' }))
      writeFileSync(join(into, 'addon.cjs'), addon)
    }
    write(
      'report.mjs',
      "import { examineNative } from 'colonnade/kernels'; console.log(JSON.stringify(examineNative()))",
    )
    try {
      return JSON.parse(node('report.mjs'))
    } finally {
      rmSync(into, { recursive: true, force: true })
    }
  }
  const addon = "exports.levels = ['one', 'best']; exports.bind = () => ({})"
  const none = (why: string) => ({ level: null, from: null, why: expect.stringContaining(why) })

  test('each is an optional dependency, of the same version', () => {
    const manifest = JSON.parse(readFileSync(join(folder, 'node_modules/colonnade/package.json'), 'utf8'))
    const optional = Object.keys(PLATFORMS).map((platform) => [packageName(platform), version])
    expect(manifest.optionalDependencies).toEqual(Object.fromEntries(optional))
    expect(Object.keys(PLATFORMS)).toHaveLength(7)
  })

  test('are loaded where they are installed, for either C library', () => {
    expect(report(addon)).toEqual({ level: 'best', from: `${name} ${version}`, why: null })
    const musl = `${name}-musl`
    expect(report(addon, version, musl)).toEqual({ level: 'best', from: `${musl} ${version}`, why: null })
  })

  test('are missing where they are not installed, of another version, or cannot be loaded, and it is said why', () => {
    expect(report()).toEqual(none(`and the package ${name} is not installed`))
    expect(report(addon, '0.0.9')).toEqual(none(`the package ${name} has version 0.0.9, expected ${version}`))
    expect(report("throw new Error('no such library')")).toEqual(none(`${name} cannot be loaded: no such library`))
    expect(report('exports.levels = []')).toEqual(none(`the package ${name} has no level that this processor has`))
  })
})
