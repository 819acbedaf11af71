/**
 * Every device that can be had, on the same work: a forward pass and a PPO update of a perceptron, and a training step of a
 * small transformer. All are in one process, so that they run in turns.
 */
import { existsSync, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Tensor } from '@tensorflow/tfjs-core'
import { type Device, type DeviceName, startDeviceFrom } from '../../src/policies/devices/device.ts'
import { check, checkClose, type Figure, figure, interleave, type Runner, rates, ratio } from '../measure.ts'
import { perceptron, transformer } from './networks.ts'

const DEVICES = ['wasm', 'cpu', 'tfjs-node-gpu', 'webgpu'] as const
const REPEATS = 7
/** Rows of the perceptron. */
const ROWS = 1024
const SHAPE = { vocabulary: 128, context: 32, width: 64, heads: 4, layers: 2, batch: 8 }
/** A run takes about as long, or one call where that takes longer. */
const RUN_SECONDS = 0.2

/** What is done, in units a call. */
interface Work {
  readonly name: string
  readonly unit: string
  readonly count: number
  call(): Tensor
}

/**
 * Where packages of devices are looked for: from here, and in what the tests have made. The second has a Vulkan driver in
 * software, with an addon that loads it.
 */
function places(): string[] {
  const root = join(tmpdir(), 'colonnade-tests')
  const made = existsSync(root) ? readdirSync(root).map((name) => join(root, name)) : []
  for (const folder of made) {
    const addon = join(folder, 'vulkan.node')
    if (!existsSync(addon)) continue
    process.env.VK_ICD_FILENAMES ??= join(folder, 'debian/usr/lib/chromium/vk_swiftshader_icd.json')
    createRequire(import.meta.url)(addon)
  }
  process.env.TF_CPP_MIN_LOG_LEVEL ??= '3'
  return [`${process.cwd()}/`, ...made.map((folder) => `${folder}/`)]
}

/** The figures of each device, with its ratio to wasm; and why those are missing that cannot be had. */
export async function compareDevices(): Promise<{ figures: Figure[]; skipped: string[] }> {
  const from = places()
  const works = new Map<DeviceName, Work[]>()
  const skipped: string[] = []
  let losses: number[] | undefined
  for (const name of DEVICES) {
    let device: Device
    try {
      device = await startDeviceFrom(from, name)
    } catch (error) {
      skipped.push(
        `${(error as Error).message}; vitest run tests/policies/devices/binding.test.ts makes one, if it can`,
      )
      continue
    }
    console.log(`${name}: ${device.version}`)
    const twins = { perceptron: perceptron(device.tf, ROWS), transformer: transformer(device.tf, SHAPE) }
    const found: number[] = []
    for (const twin of [twins.perceptron, twins.transformer, twins.perceptron, twins.transformer]) {
      found.push(await read(twin.descend()))
    }
    losses ??= found
    for (const [i, loss] of losses.entries()) checkClose(found[i]!, loss, 1e-4, `${name}: loss ${i}`)
    const weights = `${(twins.transformer.numWeights / 1e6).toFixed(2)}M`
    works.set(name, [
      { name: `forward, ${ROWS} rows`, unit: 'rows/s', count: ROWS, call: twins.perceptron.forward },
      { name: `PPO update, ${ROWS} rows`, unit: 'rows/s', count: ROWS, call: () => twins.perceptron.descend() },
      {
        name: `transformer of ${weights}, training step`,
        unit: 'tokens/s',
        count: SHAPE.batch * SHAPE.context,
        call: () => twins.transformer.descend(),
      },
    ])
  }
  const names = [...works.keys()]
  const figures: Figure[] = []
  for (const i of works.get('wasm')!.keys()) {
    const calls = new Map<DeviceName, number>()
    for (const name of names) {
      await startDeviceFrom(from, name)
      await secondsOfCalls(works.get(name)![i]!, 1)
      calls.set(name, Math.max(1, Math.round(RUN_SECONDS / (await secondsOfCalls(works.get(name)![i]!, 1)))))
    }
    const runners = names.map((name): [DeviceName, Runner] => [
      name,
      async () => {
        await startDeviceFrom(from, name)
        return (await secondsOfCalls(works.get(name)![i]!, calls.get(name)!)) / calls.get(name)!
      },
    ])
    const seconds = await interleave(Object.fromEntries(runners), { repeats: REPEATS })
    for (const name of names) {
      const { name: what, unit, count } = works.get(name)![i]!
      const made = figure(`${what}, ${name}`, unit, rates(count, seconds[name]!))
      figures.push(name === 'wasm' ? made : { ...made, ratios: [ratio('wasm', seconds.wasm!, seconds[name]!)] })
    }
  }
  return { figures, skipped }
}

async function read(tensor: Tensor): Promise<number> {
  const [value] = await tensor.data()
  tensor.dispose()
  return value!
}

/** Seconds of so many calls; a device may queue them, so the last result is read. */
async function secondsOfCalls({ name, call }: Work, count: number): Promise<number> {
  const start = performance.now()
  for (let i = 1; i < count; i++) call().dispose()
  const value = await read(call())
  const seconds = (performance.now() - start) / 1000
  check(Number.isFinite(value), `${name} gives ${value}`)
  return seconds
}
