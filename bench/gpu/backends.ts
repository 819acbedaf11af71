/** The devices of tfjs, each in a process of its own, by the doctor. */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { deviceNames } from '../../src/policies/devices/device.ts'
import { whyEnded } from '../ended.ts'

const DOCTOR_MS = 60_000

/** A row for each device: its status, and why it cannot start. */
export async function examineDevices(): Promise<object[]> {
  const command = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url))
  return deviceNames.map((name) => {
    const ended = spawnSync(process.execPath, [command, 'doctor', name, '--json'], {
      encoding: 'utf8',
      timeout: DOCTOR_MS,
    })
    try {
      const { devices } = JSON.parse(ended.stdout) as {
        devices: { status: string; why: string | null; version: string | null }[]
      }
      const { status, why, version } = devices[0]!
      return { name: `tfjs ${name}`, status, why, version }
    } catch {
      return { name: `tfjs ${name}`, status: 'crashed', why: whyEnded(ended), version: null }
    }
  })
}
