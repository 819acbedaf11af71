// Packs what is built and installs the file in a folder, as somebody has it who installs the package. Needs no network.
import { execFileSync } from 'node:child_process'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { PLATFORMS, packageName } from './native-platforms.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))

/**
 * Packs what is built into a folder: the path of the tarball, and its bytes packed and unpacked. Its optional dependencies are the
 * packages of native kernels of the platforms named. It has no scripts: npm runs `prepare` where somebody installs the unpacked folder,
 * in which nothing is left to build.
 */
export function pack(folder, platforms = []) {
  const packed = packFolder(root, folder)
  const staged = mkdtempSync(join(tmpdir(), 'colonnade-pack-'))
  try {
    execFileSync('tar', ['xzf', packed.tarball, '-C', staged])
    const { scripts, ...manifest } = readManifest(join(staged, 'package'))
    const optional = platforms.map((platform) => [packageName(platform), manifest.version])
    const named = optional.length === 0 ? {} : { optionalDependencies: Object.fromEntries(optional) }
    writeManifest(join(staged, 'package'), { ...manifest, ...named })
    execFileSync('tar', ['czf', packed.tarball, '-C', staged, 'package'])
    return packed
  } finally {
    rmSync(staged, { recursive: true, force: true })
  }
}

/** Packs an addon of native kernels as the package of its platform, in whose folder it is laid out, too. */
export function packNative(folder, platform, addon) {
  const { version, license, engines } = readManifest(root)
  const { os, cpu, libc } = PLATFORMS[platform]
  const name = packageName(platform)
  const into = join(folder, name)
  mkdirSync(into, { recursive: true })
  copyFileSync(addon, join(into, 'native.node'))
  copyFileSync(join(root, 'LICENSE'), join(into, 'LICENSE'))
  writeFileSync(join(into, 'README.md'), `# ${name}\n\nNative kernels of Colonnade for ${platform}.\n`)
  writeManifest(into, {
    ...{ name, version, description: `Native kernels of Colonnade for ${platform}.`, license, engines },
    ...{ os: [os], cpu: [cpu], ...(libc === undefined ? {} : { libc: [libc] }) },
    ...{ main: 'native.node', files: ['native.node'], preferUnplugged: true },
  })
  return packFolder(into, folder)
}

function packFolder(from, folder) {
  const words = ['pack', '--ignore-scripts', '--json', '--pack-destination', folder]
  const [{ filename, size, unpackedSize }] = JSON.parse(execFileSync('npm', words, { cwd: from, encoding: 'utf8' }))
  return { tarball: join(folder, filename), size, unpackedSize }
}

const readManifest = (folder) => JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
const writeManifest = (folder, manifest) =>
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)

/** Unpacks a tarball into a project's node_modules, beside its dependencies and `others` of the repository's packages. */
export function install(folder, tarball, others = []) {
  const modules = join(folder, 'node_modules')
  mkdirSync(modules)
  execFileSync('tar', ['xzf', tarball, '-C', modules])
  renameSync(join(modules, 'package'), join(modules, 'colonnade'))
  for (const name of [...dependencies(), ...others]) {
    mkdirSync(dirname(join(modules, name)), { recursive: true })
    if (!existsSync(join(modules, name))) symlinkSync(join(root, 'node_modules', name), join(modules, name))
  }
  writeManifest(folder, { private: true, type: 'module' })
}

/** Unpacks the tarball of a platform's native kernels beside it. */
export function installNative(folder, tarball, platform) {
  const into = join(folder, 'node_modules', packageName(platform))
  mkdirSync(into)
  execFileSync('tar', ['xzf', tarball, '-C', into, '--strip-components=1'])
}

/** Names of all packages that are installed with Colonnade. */
export function dependencies() {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  return Object.entries(packages)
    .filter(([path, { dev, optional, peer, devOptional }]) => path !== '' && !(dev || optional || peer || devOptional))
    .map(([path]) => path.replace('node_modules/', ''))
}
