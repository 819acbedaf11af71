/** Finds or makes a Python with the peers in it. */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Pinned, so that a ratio means the same thing next year. */
const REQUIREMENTS = [
  'gymnasium[box2d,mujoco]==1.4.0',
  'mujoco==3.14.0',
  'numpy==2.4.6',
  'jax==0.10.2',
  'jaxlib==0.10.2',
  'stable-baselines3==2.9.2',
  'torch==2.15.0',
  'rltools==2.2.1',
  'scipy-openblas32==0.3.34.481.3',
  'tokenizers==0.23.3',
  'transformers==5.23.0',
  'trl==1.16.0',
  'xllamacpp==2026.10.11549',
]
/** The whole of tfjs for its gradients, which the core alone does not register in Node. */
const TFJS = ['tfjs', 'tfjs-core', 'tfjs-backend-cpu', 'tfjs-backend-wasm'].map((name) => `@tensorflow/${name}@4.22.0`)

const inDist = import.meta.url.includes('/dist/bench/')
const root = fileURLToPath(new URL(inDist ? '../../../' : '../../', import.meta.url))
const cache = join(root, 'node_modules', '.cache', 'colonnade-peers')

/** Path of a program beside the bench's sources. */
export function peerSource(name: string): string {
  return join(root, 'bench', 'peers', name)
}

/** A Python that has the peers: COLONNADE_PYTHON as it is, or an environment of our own. Throws where neither is to be had. */
export function peerPython(): string {
  const given = process.env.COLONNADE_PYTHON
  if (given) {
    execFileSync(given, ['--version'], { stdio: 'ignore' })
    return given
  }
  const folder = join(cache, 'venv')
  const python = join(folder, process.platform === 'win32' ? 'Scripts/python.exe' : 'bin/python')
  once(join(cache, 'requirements.txt'), REQUIREMENTS, () => {
    execFileSync('python3', ['-m', 'venv', '--clear', folder])
    execFileSync(python, ['-m', 'pip', 'install', '--quiet', ...REQUIREMENTS], {
      stdio: ['ignore', 'inherit', 'inherit'],
    })
  })
  return python
}

/** The same where it is there already: installs nothing. */
export function installedPython(): string | undefined {
  const isThere = process.env.COLONNADE_PYTHON || existsSync(join(cache, 'requirements.txt'))
  return isThere ? peerPython() : undefined
}

/** The folder in which tfjs is installed, apart from our own packages. */
export function tfjsFolder(): string {
  const folder = join(cache, 'tfjs')
  once(join(cache, 'tfjs.txt'), TFJS, () => {
    execFileSync('npm', ['install', '--silent', '--no-audit', '--no-fund', '--prefix', folder, ...TFJS], {
      stdio: ['ignore', 'ignore', 'inherit'],
    })
  })
  return folder
}

/** Installs unless the list beside it says that just this is there. */
function once(listPath: string, wanted: readonly string[], install: () => void): void {
  const text = `${wanted.join('\n')}\n`
  if (existsSync(listPath) && readFileSync(listPath, 'utf8') === text) return
  mkdirSync(cache, { recursive: true })
  console.log(`installing ${wanted.join(' ')}`)
  install()
  writeFileSync(listPath, text)
}
