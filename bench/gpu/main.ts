/**
 * `npm run gpu`: what a GPU does here. Names each backend that cannot start and why, checks the shaders against the kernels of the
 * processor, then times both in one run: matrix products, updates of PPO, and steps of language models. At last it trains CartPole-v1 and MinAtar's Breakout on the
 * device. The record is JSON, written after every part. `torch` runs the same work by torch on the GPU, if `python3` (or COLONNADE_PYTHON) has a torch that finds one.
 *
 *     npm run gpu -- [out=bench/records/gpu.json] [parts=backends,check,products,updates,language,torch,train] [size=full|small]
 *
 * Needs the package `webgpu` (npm install webgpu@0.6.2) and a driver of Vulkan, Metal or Direct3D.
 */
import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { arch, availableParallelism, cpus, loadavg, platform } from 'node:os'
import { dirname } from 'node:path'
import { VERSION } from '../../src/index.ts'
import { bestKernelBuild } from '../../src/kernels/bind.ts'
import type { Gpu } from '../../src/kernels/webgpu/gpu.ts'
import { startGpu } from '../../src/kernels/webgpu/start.ts'
import { examineDevices } from './backends.ts'
import { checkLanguage, timeLanguage } from './language.ts'
import { checkProducts, timeProducts } from './products.ts'
import { runTorch } from './torch.ts'
import { checkUpdates, timeUpdates, trainOnDevice } from './updates.ts'

const PARTS = ['backends', 'check', 'products', 'updates', 'language', 'torch', 'train'] as const

const given = Object.fromEntries(process.argv.slice(2).map((word) => word.split('=') as [string, string]))
const { out = 'gpu-record.json', parts = PARTS.join(','), size = 'full' } = given
const unknown = [
  ...Object.keys(given).filter((key) => !['out', 'parts', 'size'].includes(key)),
  ...parts.split(',').filter((part) => !(PARTS as readonly string[]).includes(part)),
]
if (unknown.length > 0 || (size !== 'full' && size !== 'small')) {
  console.error(
    `npm run gpu: got ${process.argv.slice(2).join(' ')}, expected out=PATH, parts=${PARTS.join(',')}, size=full or small`,
  )
  process.exit(1)
}

const record: Record<string, unknown> = {
  version: VERSION,
  date: new Date().toISOString(),
  node: process.version,
  platform: `${platform()} ${arch()}`,
  cpu: cpus()[0]?.model,
  cores: availableParallelism(),
  load: loadavg()[0],
  kernels: bestKernelBuild(),
  nvidiaSmi: driverOf(),
  size,
}

await main()
process.exit() // Dawn keeps a process alive.

async function main(): Promise<void> {
  // `small`: sizes for a software adapter, which show only that all runs.
  const sizes = size === 'small' ? 'small' : 'full'
  if (parts.includes('backends')) keep('backends', await examineDevices())
  let gpu: Gpu
  try {
    gpu = await startGpu()
  } catch (error) {
    keep('webgpu', { status: 'cannot start', why: (error as Error).message })
    process.exitCode = 1
    return
  }
  keep('webgpu', { status: 'ready', adapter: gpu.description, isGpu: gpu.isGpu, maxColumnBytes: gpu.maxColumnBytes })
  if (parts.includes('check')) {
    keep('products against the processor', await checkProducts(gpu))
    keep('updates against the processor', await checkUpdates())
    keep('language models against the processor', await checkLanguage())
  }
  if (parts.includes('products')) await timeProducts(gpu, sizes, (rows) => keep('products', rows))
  if (parts.includes('updates')) await timeUpdates(gpu, sizes, (rows) => keep('updates', rows))
  if (parts.includes('language')) await timeLanguage(sizes, (rows) => keep('updates of language models', rows))
  if (parts.includes('torch')) keep('torch on the GPU', runTorch(sizes))
  if (parts.includes('train')) await trainOnDevice(sizes, (rows) => keep('training', rows))
}

/** Prints a part, and writes the record as it is now. */
function keep(name: string, value: unknown): void {
  record[name] = value
  const rows = Array.isArray(value) ? value : [value]
  console.log(`\n${name}`)
  if (rows.length > 0) console.table(rows)
  mkdirSync(dirname(out), { recursive: true })
  writeFileSync(out, `${JSON.stringify(record, null, 2)}\n`)
}

/** The driver's own word about the GPU; why not, if it has none. */
function driverOf(): string {
  const { stdout, error } = spawnSync(
    'nvidia-smi',
    ['--query-gpu=name,driver_version,memory.total', '--format=csv,noheader'],
    {
      encoding: 'utf8',
    },
  )
  return error === undefined ? stdout.trim() : `nvidia-smi: ${error.message}`
}
