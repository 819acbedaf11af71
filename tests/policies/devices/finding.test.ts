import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { beforeEach, describe, expect, test } from 'vitest'
import { MAIN, start } from '../../support/command.ts'
import { fakeTensorflow } from '../../support/fake-tensorflow.ts'
import { temporaryFolder } from '../../support/temporary.ts'

/** What a program in `folder` sees that starts these devices one after another; '' is none named. */
interface Seen {
  readonly name?: string
  readonly version?: string
  readonly isGpu?: boolean | null
  readonly passedOver?: { name: string; why: string }[]
  readonly error?: { name: string; message: string; cause: string }
  /** tfjs's active backend afterwards, and a sum that it made. */
  readonly active: string
  readonly sum: number
}

let folder: string

beforeEach(async () => {
  folder = await temporaryFolder()
})

async function startIn(names: readonly string[], before = ''): Promise<Seen[]> {
  const text = `
    import util from 'node:util'
    import { startDevice } from '${pathToFileURL(MAIN.replace('cli/main.js', 'entries/devices.js'))}'
    ${before}
    for (const wanted of ${JSON.stringify(names)}) {
      let seen
      try {
        const { tf, layers, ...rest } = await startDevice(wanted || undefined)
        globalThis.tf = tf
        seen = rest
      } catch ({ name, message, cause }) {
        seen = { error: { name, message, cause: String(cause) } }
      }
      const sum = globalThis.tf?.tidy(() => tf.sum([1, 2, 3]).dataSync()[0])
      console.log(JSON.stringify({ ...seen, active: globalThis.tf?.getBackend(), sum }))
    }`
  const program = join(folder, 'program.mjs')
  await writeFile(program, text)
  const { code, stdout, stderr } = await start(process.execPath, [program], { cwd: '/' }).ended
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
}

describe('without a name', () => {
  test('and without tfjs, which is an optional peer, an error says what to install', async () => {
    const before = `
      const { default: Module } = await import('node:module')
      const resolve = Module._resolveFilename
      Module._resolveFilename = (name, ...more) => {
        if (!name.startsWith('@tensorflow/')) return resolve(name, ...more)
        throw Object.assign(new Error('none'), { code: 'MODULE_NOT_FOUND' })
      }`
    const [none, named] = await startIn(['', 'wasm'], before)
    const install =
      'npm install @tensorflow/tfjs-core@4.22.0 @tensorflow/tfjs-layers@4.22.0 @tensorflow/tfjs-backend-wasm@4.22.0'
    for (const { error } of [none!, named!]) {
      expect(error).toMatchObject({ name: 'InputError', message: expect.stringContaining(install) })
    }
  })

  test('tfjs-node-gpu comes before tfjs-node, and is found beside the program', async () => {
    await fakeTensorflow(folder, 'tfjs-node')
    await fakeTensorflow(folder, 'tfjs-node-gpu')
    const [device] = await startIn([''])
    expect(device).toMatchObject({ name: 'tfjs-node-gpu', backend: 'tensorflow', isGpu: true, passedOver: [], sum: 6 })
    expect(device!.version).toBe('tfjs-node-gpu 4.22.0, TensorFlow 0.0.0')
  })

  test('one whose native addon is not there is passed over, and said', async () => {
    await fakeTensorflow(folder, 'tfjs-node')
    await fakeTensorflow(folder, 'tfjs-node-gpu', { addon: null })
    const [device] = await startIn([''])
    expect(device).toMatchObject({ name: 'tfjs-node', isGpu: false })
    expect(device!.passedOver).toEqual([
      {
        name: 'tfjs-node-gpu',
        why: expect.stringMatching(/tfjs-node-gpu\/addon.js is not there: the install script of/),
      },
    ])
  })

  test('one whose native addon cannot be loaded is passed over with what the loader said', async () => {
    await fakeTensorflow(folder, 'tfjs-node-gpu', { addon: 'throw new Error("libcudart.so.12: no such file")' })
    const [device] = await startIn([''])
    expect(device).toMatchObject({ name: 'wasm', active: 'wasm', sum: 6 })
    expect(device!.passedOver![0]).toEqual({ name: 'tfjs-node-gpu', why: 'libcudart.so.12: no such file' })
  })
})

describe('a named device', () => {
  test('that cannot start is an InputError with the cause, whatever else could start', async () => {
    await fakeTensorflow(folder, 'tfjs-node')
    await fakeTensorflow(folder, 'tfjs-node-gpu', { addon: 'throw new Error("libcudart.so.12: no such file")' })
    const [seen] = await startIn(['tfjs-node-gpu'])
    expect(seen!.error).toEqual({
      name: 'InputError',
      message: 'device: got "tfjs-node-gpu", expected a device that can start here; libcudart.so.12: no such file',
      cause: 'Error: libcudart.so.12: no such file',
    })
  })

  test('with a tfjs of another version is refused: the two would share an engine', async () => {
    await fakeTensorflow(folder, 'tfjs-node', { core: '4.21.0' })
    const [seen] = await startIn(['tfjs-node'])
    expect(seen!.error!.message).toMatch(/tfjs\/package.json comes with tfjs 4.21.0, and Colonnade needs 4.22.0$/)
  })

  test('that fails when its backend is made leaves the active one active', async () => {
    const load = "tf.registerBackend('tensorflow', () => { throw new Error('no memory') }); tf.setBackend('tensorflow')"
    await fakeTensorflow(folder, 'tfjs-node', { load })
    // tfjs logs the failure as well: the package sets its own backend when it is loaded.
    const [wasm, failed] = await startIn(['wasm', 'tfjs-node'], 'console.warn = () => {}')
    expect(wasm).toMatchObject({ name: 'wasm', active: 'wasm' })
    expect(failed!.error!.cause).toBe('Error: no memory')
    expect(failed).toMatchObject({ active: 'wasm', sum: 6 })
  })

  test('is not the other TensorFlow binding, where one is loaded', async () => {
    await fakeTensorflow(folder, 'tfjs-node')
    await fakeTensorflow(folder, 'tfjs-node-gpu')
    const [first, second] = await startIn(['tfjs-node-gpu', 'tfjs-node'])
    expect(first!.name).toBe('tfjs-node-gpu')
    expect(second!.error!.message).toMatch(/this process has loaded tfjs-node-gpu, and two TensorFlow bindings/)
    expect(second!.active).toBe('tensorflow')
  })

  test("finds node:util's old functions, which Node 23 removed, before the package is loaded", async () => {
    const load = `
      const { isNullOrUndefined, isArray } = require('node:util')
      if (!isNullOrUndefined(null) || !isNullOrUndefined(undefined) || isNullOrUndefined(0)) throw new Error('wrong')
      if (!isArray([]) || isArray({ length: 0 })) throw new Error('wrong')
      register()`
    await fakeTensorflow(folder, 'tfjs-node', { load })
    const [seen] = await startIn(['tfjs-node'], 'delete util.isNullOrUndefined; delete util.isArray')
    expect(seen).toMatchObject({ name: 'tfjs-node', sum: 6 })
  })

  test('webgpu needs both of its packages, and an adapter', async () => {
    const put = async (name: string, files: Record<string, string>) => {
      await mkdir(join(folder, 'node_modules', name), { recursive: true })
      for (const [file, text] of Object.entries(files)) await writeFile(join(folder, 'node_modules', name, file), text)
    }
    await put('webgpu', {
      'package.json': '{ "version": "0.6.2", "type": "module" }',
      'index.js': 'export const globals = {}; export const create = () => ({ requestAdapter: async () => null })',
    })
    const [alone] = await startIn(['webgpu'])
    expect(alone!.error!.cause).toMatch(/package @tensorflow\/tfjs-backend-webgpu is not installed/)
    await fakeTensorflow(folder, 'tfjs-backend-webgpu')
    const [both] = await startIn(['webgpu'])
    expect(both!.error!.cause).toMatch(/Dawn found no adapter/)
  })
})
