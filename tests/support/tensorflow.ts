/**
 * The TensorFlow binding of `@tensorflow/tfjs-node-gpu`, built here. Its install script downloads TensorFlow's C
 * library from outside the package registries; PyPI's `tensorflow-cpu` has the same library with its headers.
 */
import { mkdir, rm, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { cached, installPackages, type Made, type Run } from './cache.ts'

const TFJS = '4.22.0'
const TENSORFLOW = '2.21.0'
const NODE_HEADERS = '1.9.0'

/** A folder from which `@tensorflow/tfjs-node-gpu` loads, or why there is none here. */
export async function tensorflowBinding(): Promise<Made> {
  const machine = { x64: 'x86_64', arm64: 'aarch64' }[process.arch as string]
  if (process.platform !== 'linux' || machine === undefined) {
    return { why: `no TensorFlow library is known for ${process.platform} ${process.arch}` }
  }
  return cached(`tfjs-node-gpu-${TFJS}-tensorflow-${TENSORFLOW}-${process.arch}`, async (folder, run) => {
    await installPackages(folder, run, [`@tensorflow/tfjs-node-gpu@${TFJS}`, `node-api-headers@${NODE_HEADERS}`])
    const wheel = ['--no-deps', '--only-binary=:all:', '--python-version=3.11', `--platform=manylinux_2_27_${machine}`]
    const pip = ['-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '--dest=wheel']
    await run('python3', [...pip, ...wheel, `tensorflow-cpu==${TENSORFLOW}`])
    await run('python3', ['-c', UNPACK])
    await rm(join(folder, 'wheel'), { recursive: true })
    await compile(folder, run)
    const check = "if (require('@tensorflow/tfjs-node-gpu').getBackend() !== 'tensorflow') process.exit(1)"
    await run(process.execPath, ['-e', check])
  })
}

const UNPACK = `
import glob, zipfile
wheel = zipfile.ZipFile(glob.glob('wheel/*.whl')[0])
wanted = ('tensorflow/include/', 'tensorflow/libtensorflow_cc.so.2', 'tensorflow/libtensorflow_framework.so.2')
wheel.extractall('.', [name for name in wheel.namelist() if name.startswith(wanted)])
`

/** Compiles as in the package's `binding.gyp`, with the one library under the names that it and the loader need. */
async function compile(folder: string, run: Run): Promise<void> {
  const below = 'node_modules/@tensorflow/tfjs-node-gpu'
  const module = join(folder, below)
  const unpacked = '../../../../tensorflow'
  await mkdir(join(module, 'deps/lib'), { recursive: true })
  await mkdir(join(module, 'lib/napi-v8'), { recursive: true })
  await symlink(join(unpacked, 'include'), join(module, 'deps/include'))
  const [cc, framework] = ['libtensorflow_cc.so.2', 'libtensorflow_framework.so.2']
  const links = { 'libtensorflow.so': cc, 'libtensorflow.so.2': cc, [cc]: cc, 'libtensorflow_framework.so': framework }
  for (const [name, library] of Object.entries({ ...links, [framework]: framework })) {
    await symlink(join('..', unpacked, library), join(module, 'deps/lib', name))
  }
  const options = ['-O2', '-std=c++17', '-fPIC', '-shared', '-DNAPI_VERSION=8']
  const include = ['-I', '../../node-api-headers/include', '-I', 'deps/include', '-I', '.']
  const files = ['binding/tfjs_backend.cc', 'binding/tfjs_binding.cc', '-o', 'lib/napi-v8/tfjs_binding.node']
  const link = ['-L', 'deps/lib', '-ltensorflow', '-ltensorflow_framework', '-Wl,-rpath,$ORIGIN/../../deps/lib']
  await run('g++', [...options, ...include, ...files, ...link], below)
}
