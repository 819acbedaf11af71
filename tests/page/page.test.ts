/**
 * The package as a page has it: what is built into dist/page, linked as a bundler does, runs where there is nothing of Node, with or
 * without memory that threads share, and leaves the bits of Node's relaxed build. `tests/outside/bundlers.test.ts` asks browsers.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { OutputChunk } from 'rolldown'
import { beforeAll, describe, expect, test } from 'vitest'
import { sha256 as ofPage } from '../../src/base/files/digest.page.ts'
import { sha256 as ofNode } from '../../src/base/files/digest.ts'
import * as paths from '../../src/base/files/path.page.ts'
import { exportPolicy } from '../../src/entries/data.ts'
import * as colonnade from '../../src/index.ts'
import { exports, link, pageOf, root } from '../support/linked-page.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

const { breakout, cartPole, createTrainer, createWorld, mlp, pendulum, ppo } = colonnade
/** What page programs may import beside Colonnade's modules: its dependencies, each with a body for pages. */
const PACKAGES = ['@huggingface/jinja', '@huggingface/tokenizers', 'apache-arrow', 'bitecs', 'fflate']
/** Kilobytes, compressed, of a page that trains CartPole with PPO, its kernels included. */
const KILOBYTES_MAX = 150

/** What page and Node do: a small transformer learns to turn words around, first from answers, then from rewards. */
const TALK = `
async function talk({ createTrainer, createWorld, languageModel, rl, sft, textEnvironmentFactory }, kernels) {
  const environment = textEnvironmentFactory('text/reverse')({ maxLength: 3 })
  const policy = languageModel({ width: 16, layers: 1 })
  const world = await createWorld({ environment, policy, numLanes: 16, seed: 3, maxTokens: 6, groupSize: 4, kernels })
  const phases = [sft({ updates: 2, batchSize: 8 }), rl({ updates: 2, groupsPerUpdate: 4, groupSize: 4 })]
  const trainer = createTrainer(world, phases)
  const told = []
  for await (const { phase, loss } of trainer.updates()) told.push([phase, loss])
  const weights = [...world.cohort().weights]
  trainer.close()
  return { told, weights }
}
`

const PROGRAM = `
import {
  breakout, cartPole, createTrainer, createWorld, exportPolicy, listFiles, mlp, pendulum, ppo, readFile, writeFile,
} from 'colonnade'
import { languageModel, rl, sft, textEnvironmentFactory } from 'colonnade/text'
const make = async (name) => {
  const environment = { cartPole, pendulum, breakout }[name]()
  const policy = mlp({ hidden: [32] })
  const world = await createWorld({ environment, policy, numLanes: 16, seed: 3 })
  return { world, environment, policy, trainer: createTrainer(world, ppo({ numSteps: 32 })) }
}
${TALK}
export const converse = () => talk({ createTrainer, createWorld, languageModel, rl, sft, textEnvironmentFactory })
export async function train(name, updates) {
  const { world, environment, policy, trainer } = await make(name)
  for await (const { update } of trainer.updates({ totalSteps: 512 * updates }));
  await trainer.save('run')
  const weights = world.cohort().weights.slice()
  await exportPolicy({ environment, policy, weights, format: 'onnx', out: 'run/policy.onnx' })
  await exportPolicy({ environment, policy, weights, format: 'module', out: 'run/policy.mjs' })
  const files = []
  for (const path of await listFiles('run')) {
    files.push([path, [...(await readFile(path))]])
    await writeFile(path.replace('run', 'elsewhere'), await readFile(path))
  }
  const { trainer: restored } = await make(name)
  await restored.restore('elsewhere')
  return { build: world.kernelBuild, weights: [...weights], again: [...restored.world.cohort().weights], files }
}
`

interface Talked {
  readonly told: readonly [string, number][]
  readonly weights: readonly number[]
}

/** What the program gives; files by path. */
interface Trained {
  readonly build: string
  readonly weights: readonly number[]
  readonly again: readonly number[]
  readonly files: readonly (readonly [string, number[]])[]
}

async function makeHere(name: 'cartPole' | 'pendulum' | 'breakout') {
  const environment = { cartPole, pendulum, breakout }[name]()
  const policy = mlp({ hidden: [32] })
  const world = await createWorld({ environment, policy, numLanes: 16, seed: 3, kernels: 'relaxed' })
  return { world, environment, policy, trainer: createTrainer(world, ppo({ numSteps: 32 })) }
}

test('no module of Node is reachable from an entry with the condition browser', () => {
  const open = Object.values(exports).flatMap(({ browser }) => (browser ? [join(root, browser.default)] : []))
  expect(open.length).toBeGreaterThan(1)
  const found = new Set(open)
  const foreign: string[] = []
  for (const file of found) {
    const code = readFileSync(file, 'utf8')
    for (const [, name = ''] of code.matchAll(/(?:\bfrom|\bimport|\bimport\()\s*["']([^"'\n]+)["']/g)) {
      if (name.startsWith('.')) found.add(join(dirname(file), name))
      else if (!PACKAGES.includes(name)) foreign.push(`${name} in ${relative(root, file)}`)
    }
  }
  expect(found.size).toBeGreaterThan(150)
  expect(foreign).toEqual([])
})

describe('a page', () => {
  /** The linked program, as a script for a context that has what pages have. */
  let script = ''

  beforeAll(async () => {
    const [linked] = await link(PROGRAM, 'iife')
    script = linked!.code
  })

  async function inPage(isIsolated: boolean, name: string, updates: number): Promise<Trained> {
    const { train } = pageOf(script, isIsolated) as { train(name: string, updates: number): Promise<Trained> }
    return train(name, updates)
  }

  test('trains a transformer on text/reverse with the bits of Node', async () => {
    const talk = new Function(`${TALK}; return talk`)() as (given: object, kernels: string) => Promise<Talked>
    const expected = await talk(colonnade, 'relaxed')
    const { converse } = pageOf(script, false) as { converse(): Promise<Talked> }
    const { told, weights } = await converse()
    expect(told.map(([phase]) => phase)).toEqual(['sft', 'sft', 'rl', 'rl'])
    expect(JSON.stringify(told)).toBe(JSON.stringify(expected.told))
    expect([...weights]).toEqual(expected.weights)
  })

  const rows = [
    ['cartPole', true],
    ['cartPole', false],
    ['pendulum', false],
    ['breakout', false],
  ] as const
  test.each(rowsOf(rows, 3))(
    'trains %s (shared memory: %s) with the bits of Node, which goes on from its checkpoint',
    async (name, isIsolated) => {
      const { world, environment, policy, trainer } = await makeHere(name) // First, since it lets Node 20 run relaxed SIMD.
      for await (const _ of trainer.updates({ totalSteps: 512 * 4 }));
      const expected = world.cohort().weights.slice()
      const { build, weights, again, files } = await inPage(isIsolated, name, 4)
      expect(build).toBe('relaxed')
      expect(weights.length).toBeGreaterThan(100)
      expect([...weights]).toEqual([...expected])
      expect([...again]).toEqual([...expected])

      const folder = await temporaryFolder()
      for (const [path, bytes] of files) {
        mkdirSync(dirname(join(folder, path)), { recursive: true })
        writeFileSync(join(folder, path), Uint8Array.from(bytes))
      }
      const here = await makeHere(name)
      await here.trainer.restore(join(folder, 'run'))
      for await (const _ of here.trainer.updates({ totalSteps: 512 * 6 }));
      for await (const _ of trainer.updates({ totalSteps: 512 * 6 }));
      expect([...here.world.cohort().weights]).toEqual([...world.cohort().weights])
      for (const [format, file] of [
        ['onnx', 'policy.onnx'],
        ['module', 'policy.mjs'],
      ] as const) {
        await exportPolicy({ environment, policy, weights: expected, format, out: join(folder, file) })
        expect(readFileSync(join(folder, 'run', file)).equals(readFileSync(join(folder, file)))).toBe(true)
      }
    },
  )
})

test(`CartPole with PPO takes at most ${KILOBYTES_MAX} kB, compressed and with its kernels`, async () => {
  const program = `
    import { cartPole, createTrainer, createWorld, mlp, ppo } from 'colonnade'
    const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 16, seed: 1 })
    for await (const metrics of createTrainer(world, ppo()).updates({ totalSteps: 1e5 })) console.log(metrics)`
  const chunks = await link(program, 'esm')
  const isKernels = ({ moduleIds }: OutputChunk) => moduleIds.some((id) => id.endsWith('relaxed-module.js'))
  const loaded = new Set(chunks.filter((chunk) => chunk.isEntry || isKernels(chunk)))
  for (const { imports } of loaded) for (const chunk of chunks) if (imports.includes(chunk.fileName)) loaded.add(chunk)
  expect(chunks.filter(isKernels).length).toBe(1)
  const kilobytes = [...loaded].reduce((sum, { code }) => sum + gzipSync(code, { level: 9 }).length / 1000, 0)
  expect(kilobytes).toBeGreaterThan(60)
  expect(kilobytes).toBeLessThan(KILOBYTES_MAX)
  const others = /fleet|training\/(run\/|text\/(learn|collect))/
  expect(
    [...loaded]
      .flatMap(({ modules }) => Object.entries(modules))
      .flatMap(([id, { code }]) => (code && others.test(id) ? [id] : [])),
  ).toEqual([])
})

describe('what a page has in place of Node', () => {
  test('its SHA-256 is that of OpenSSL', () => {
    for (const size of [0, 1, 55, 56, 63, 64, 65, 119, 1000]) {
      const bytes = Uint8Array.from({ length: size }, (_, i) => (31 * i + size) & 255)
      const expected = createHash('sha256').update(bytes).digest('hex')
      expect(ofPage().update(bytes).hex()).toBe(expected)
      expect(
        ofPage()
          .update(bytes.subarray(0, size >> 1))
          .update(bytes.subarray(size >> 1))
          .hex(),
      ).toBe(expected)
      expect(ofNode().update(bytes).hex()).toBe(expected)
    }
  })

  test('its paths are those of Linux', async () => {
    const { posix } = await import('node:path')
    const some = [
      '',
      '/',
      'a',
      '/a',
      'a/',
      'a/b',
      '/a/b.c',
      '/a//b/../c',
      '../a',
      './a',
      'a.tar.gz',
      '.hidden',
      'a/.b/',
    ]
    for (const path of some) {
      const { basename, dirname, extname, isAbsolute, join } = paths
      const ours = [basename, dirname, extname, isAbsolute, join].map((ask) => ask(path))
      const theirs = [posix.basename, posix.dirname, posix.extname, posix.isAbsolute, posix.join].map((ask) =>
        ask(path),
      )
      expect([path, ...ours]).toEqual([path, ...theirs])
      for (const other of some) {
        expect([path, other, paths.join(path, other)]).toEqual([path, other, posix.join(path, other)])
        const [from, to] = [`/${path}`, `/${other}`]
        expect([from, to, paths.resolve(from, other)]).toEqual([from, to, posix.resolve(from, other)])
        expect([from, to, paths.relative(from, to)]).toEqual([from, to, posix.relative(from, to)])
      }
    }
  })
})
