import { beforeEach, expect, test } from 'vitest'
import { deviceNames } from '../../src/entries/devices.ts'
import { examineNative, kernelBuilds } from '../../src/kernels/bind.ts'
import { colonnade, colonnadeIn } from '../support/command.ts'
import { fakeTensorflow } from '../support/fake-tensorflow.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { thorough } from '../support/tiers.ts'

let folder: string

beforeEach(async () => {
  folder = await temporaryFolder()
})

test('prints the machine, a line for each device in order of preference, also of one that crashes, and which would be taken', async () => {
  const addon = "console.error('about to crash'); process.kill(process.pid, 'SIGSEGV')"
  await fakeTensorflow(folder, 'tfjs-node-gpu', { addon })
  const { code, stdout, stderr } = await colonnadeIn(folder, ['doctor'])
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const [machine, kernels, head, ...lines] = stdout.trim().split('\n')
  expect(machine).toMatch(
    new RegExp(`^Node ${process.version} on ${process.platform} ${process.arch}, \\d+ cores \\(.+\\)$`),
  )
  const { level, from, why } = examineNative()
  const builds = `${kernelBuilds().join(', ')} (native: ${level === null ? `none: ${why}` : `${level}, from ${from}`})`
  expect(kernels).toBe(`kernel builds: ${builds}; SharedArrayBuffer: yes`)
  expect(head).toMatch(/^device +status +GFLOP\/s +reads +GPU +version, or why not$/)
  expect(lines.map((line) => line.split(' ')[0])).toEqual([...deviceNames, 'unless'])
  expect(lines[0]).toMatch(/^tfjs-node-gpu +crashed +its process ended with SIGSEGV, saying: about to crash$/)
  expect(lines[1]).toMatch(/^tfjs-node +missing +package @tensorflow\/tfjs-node is not installed/)
  expect(lines[3]).toMatch(/^wasm +ready +\d+\.\d +at once +no +tfjs-backend-wasm 4\.22\.0$/)
  expect(lines[4]).toMatch(/^cpu +ready +\d+\.\d +at once +no +tfjs-backend-cpu 4\.22\.0$/)
  expect(lines[5]).toBe('unless one is named: wasm')
})

thorough(
  '--json gives the same as one document; a device that crashes is reported, and the others are still examined',
  async () => {
    await fakeTensorflow(folder, 'tfjs-node')
    const addon = "console.error('about to crash'); process.kill(process.pid, 'SIGSEGV')"
    await fakeTensorflow(folder, 'tfjs-node-gpu', { addon })
    const { code, stdout } = await colonnadeIn(folder, ['doctor', '--json'])
    expect(code).toBe(0)
    const report = JSON.parse(stdout)
    expect(report).toMatchObject({ node: process.version, sharedMemory: true, best: 'tfjs-node' })
    expect(report.kernelBuilds).toEqual(kernelBuilds())
    expect(report.native).toEqual(examineNative())
    expect(report.devices.map(({ name }: { name: string }) => name)).toEqual(deviceNames)
    const [gpu, node, webgpu, wasm] = report.devices
    const why = 'its process ended with SIGSEGV, saying: about to crash'
    expect(gpu).toMatchObject({ status: 'crashed', why, gflops: null })
    expect(webgpu).toEqual({
      name: 'webgpu',
      status: 'missing',
      why: expect.stringContaining('is not installed (npm install '),
      version: null,
      readsSynchronously: null,
      isGpu: null,
      gflops: null,
    })
    expect(wasm.status).toBe('ready')
    expect(node).toMatchObject({
      status: 'ready',
      why: null,
      version: 'tfjs-node 4.22.0, TensorFlow 0.0.0',
      isGpu: false,
    })
    expect(node.gflops).toBeGreaterThan(0)
  },
)

test('a device that computes wrongly is broken, whatever its speed', async () => {
  const load = `register()
    tf.unregisterKernel('BatchMatMul', 'tensorflow')
    tf.registerKernel({ kernelName: 'BatchMatMul', backendName: 'tensorflow', kernelFunc: ({ inputs }) => inputs.a })`
  await fakeTensorflow(folder, 'tfjs-node', { load })
  const { stdout } = await colonnadeIn(folder, ['doctor', 'tfjs-node', '--json'])
  const { devices } = JSON.parse(stdout)
  expect(devices).toHaveLength(1)
  expect(devices[0]).toMatchObject({ name: 'tfjs-node', status: 'broken', gflops: null })
  expect(devices[0].why).toMatch(/^a matrix product is wrong: got -?\d+ at row 0, column 0, expected -?\d+$/)
})

test('a device whose library cannot be loaded is broken, not missing', async () => {
  await fakeTensorflow(folder, 'tfjs-node', { addon: 'throw new Error("libtensorflow.so.2: no such file")' })
  const { stdout } = await colonnadeIn(folder, ['doctor', 'tfjs-node'])
  expect(stdout.trim().split('\n').at(-1)).toMatch(/^tfjs-node +broken +libtensorflow\.so\.2: no such file$/)
})

test('an unknown device, and more than one, are refused', async () => {
  const unknown = await colonnade(['doctor', 'wasn'], folder)
  expect(unknown.code).toBe(1)
  expect(unknown.stderr.trim()).toBe(
    'colonnade: device: got "wasn" (did you mean "wasm"?), expected one of tfjs-node-gpu, tfjs-node, webgpu, wasm, cpu',
  )
  const two = await colonnade(['doctor', 'wasm', 'cpu'], folder)
  expect(two.stderr.trim()).toBe('colonnade: devices: got wasm cpu, expected one, or none for all')
})

test('stands in the help', async () => {
  expect((await colonnade(['--help'], folder)).stdout).toContain('\n  doctor [device] ')
})
