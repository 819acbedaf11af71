// Packs what is built and installs the file in a folder, as somebody has it who installs the package. Needs no network.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

/** Packs what is built into a folder: the path of the tarball, and its bytes packed and unpacked. */
export function pack(folder) {
  const words = ['pack', '--ignore-scripts', '--json', '--pack-destination', folder]
  const [{ filename, size, unpackedSize }] = JSON.parse(execFileSync('npm', words, { cwd: root, encoding: 'utf8' }))
  return { tarball: join(folder, filename), size, unpackedSize }
}

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
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true, type: 'module' }))
}

/** Names of all packages that are installed with Colonnade. */
export function dependencies() {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  return Object.entries(packages)
    .filter(([path, { dev, optional, peer, devOptional }]) => path !== '' && !(dev || optional || peer || devOptional))
    .map(([path]) => path.replace('node_modules/', ''))
}
