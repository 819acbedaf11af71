import { spawn } from 'node:child_process'
import { availableParallelism, cpus } from 'node:os'
import { InputError, unknownWord } from '../../base/errors.ts'
import type { Command } from '../../base/invocation.ts'
import { type DeviceName, type DeviceReport, deviceNames, examineDevice } from '../../entries/devices.ts'
import { examineNative, kernelBuilds } from '../../kernels/bind.ts'

/** A device in the doctor's list; `crashed`: it ended its process. */
type Row = Omit<DeviceReport, 'status'> & { readonly status: DeviceReport['status'] | 'crashed' }

/** Milliseconds after which an unresponsive device's process is killed. */
const ANSWER_MS = 120_000

/** colonnade doctor [device]: examines the device in this process, or without one each in its own process. */
export const doctorCommand: Command = async ({ words, json }) => {
  const unknown = words.find((word) => !(deviceNames as readonly string[]).includes(word))
  if (unknown !== undefined) throw unknownWord('device', unknown, deviceNames)
  if (words.length > 1) throw new InputError('devices', words.join(' '), 'one, or none for all')
  const machine = describeMachine()
  if (!json) {
    const { node, platform, cores, processor, kernelBuilds, native, sharedMemory } = machine
    console.log(`Node ${node} on ${platform}, ${cores} cores (${processor})`)
    const which = native.level === null ? `none: ${native.why}` : `${native.level}, from ${native.from}`
    console.log(
      `kernel builds: ${kernelBuilds.join(', ')} (native: ${which}); SharedArrayBuffer: ${yesOrNo(sharedMemory)}`,
    )
    console.log(line('device', 'status', 'GFLOP/s', 'reads', 'GPU', 'version, or why not'))
  }
  const devices: Row[] = []
  for (const name of deviceNames) {
    if (words.length > 0 && words[0] !== name) continue
    // A crashing native library ends its process; this one has to report the others.
    const row = words.length > 0 ? await examineDevice(name) : await examineApart(name)
    devices.push(row)
    if (!json) console.log(describe(row))
  }
  if (words.length > 0) return { ...machine, devices }
  const best = devices.find(({ status, why }) => status === 'ready' && why === null)?.name ?? null
  if (!json) console.log(best === null ? 'no device is ready' : `unless one is named: ${best}`)
  return { ...machine, devices, best }
}

function describeMachine() {
  return {
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
    cores: availableParallelism(),
    processor: cpus()[0]?.model ?? 'unknown processor',
    kernelBuilds: kernelBuilds(),
    native: examineNative(),
    sharedMemory: typeof SharedArrayBuffer !== 'undefined',
  }
}

/** Runs `colonnade doctor <name> --json` in its own process. */
function examineApart(name: DeviceName): Promise<Row> {
  const words = [process.argv[1]!, 'doctor', name, '--json']
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'pipe'], timeout: ANSWER_MS })
  let [output, errors] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text
  })
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code, signal) => {
      if (code === 0) {
        resolve((JSON.parse(output.trimEnd().split('\n').at(-1)!) as { devices: [DeviceReport] }).devices[0])
        return
      }
      const last = errors.trimEnd().split('\n').at(-1)
      const why = `its process ended with ${signal ?? `code ${code}`}${last ? `, saying: ${last}` : ''}`
      resolve({ name, status: 'crashed', why, version: null, readsSynchronously: null, isGpu: null, gflops: null })
    })
  })
}

function describe({ name, status, why, version, readsSynchronously, isGpu, gflops }: Row): string {
  const reads = readsSynchronously === null ? '' : readsSynchronously ? 'at once' : 'awaited'
  const figure = gflops === null ? '' : gflops.toFixed(1)
  const gpu = status === 'ready' ? (isGpu === null ? '?' : yesOrNo(isGpu)) : ''
  return line(name, status, figure, reads, gpu, [version, why].filter((part) => part !== null).join('; '))
}

function line(name: string, status: string, gflops: string, reads: string, gpu: string, rest: string): string {
  return `${name.padEnd(14)} ${status.padEnd(8)} ${gflops.padStart(8)}  ${reads.padEnd(8)} ${gpu.padEnd(4)} ${rest}`
}

function yesOrNo(value: boolean): string {
  return value ? 'yes' : 'no'
}
