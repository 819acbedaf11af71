/** SkyRL's server of Tinker's protocol, on JAX and the CPU, in a virtual environment that is made once. */
import { chmod, cp, mkdir, readdir, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { delimiter, join } from 'node:path'
import { cached, type Run } from './cache.ts'
import { start } from './command.ts'
import { freePort } from './programs.ts'
import { attempt } from './python.ts'
import { temporaryFolder } from './temporary.ts'

const PACKAGES = ['skyrl[tinker,jax]==0.3.0', 'tinker==0.24.1']
const START_MS = 30 * 60_000
const BACKEND = { max_lora_adapters: 6, max_lora_rank: 4, sample_max_num_sequences: 8, train_micro_batch_size: 8 }

/**
 * Replaces `uv run … -m module …`, the server's expected parent, with which it starts its engine: runs the module with
 * the environment's own Python.
 */
const UV = `#!/bin/bash
while [ "$1" != "-m" ]; do shift; done
"$SKYRL_PYTHON" "$@" &
child=$!
trap 'kill -TERM $child 2>/dev/null' TERM INT
wait $child
wait $child
`

/** Starts the server for the model in a folder. SKYRL_URL names a running one with the same model. */
export async function startSkyrl(model: string): Promise<{ url: string; close: () => Promise<void> }> {
  const { SKYRL_URL: running } = process.env
  if (running !== undefined && running !== '') return { url: running, close: async () => {} }
  const make = async (folder: string, run: Run) => {
    const python = join(folder, 'bin/python')
    await run(await findPython312(), ['-m', 'venv', '.'])
    await run(python, ['-m', 'pip', 'install', '--quiet', 'uv'])
    await run(python, ['-m', 'uv', 'pip', 'install', '--python', python, ...PACKAGES])
  }
  const made = await cached('skyrl-0.3.0', make, START_MS)
  if ('why' in made) throw new Error(made.why)
  const folder = await temporaryFolder()
  await mkdir(join(folder, 'bin'))
  await writeFile(join(folder, 'bin/uv'), UV)
  await chmod(join(folder, 'bin/uv'), 0o755)
  await cp(model, join(folder, 'model'), { recursive: true })
  const port = await freePort()
  const words = [
    ...['run', '--isolated', '-m', 'skyrl.tinker.api', '--host', '127.0.0.1', '--port', String(port)],
    ...['--base-model', 'model', '--backend', 'jax', '--backend-config', JSON.stringify(BACKEND)],
    ...['--database-url', `sqlite:///${join(folder, 'tinker.db')}`, '--checkpoints-base', join(folder, 'checkpoints')],
  ]
  const server = start(join(folder, 'bin/uv'), words, {
    cwd: folder,
    timeout: 0,
    env: {
      ...process.env,
      PATH: `${join(folder, 'bin')}${delimiter}${process.env.PATH}`,
      ...{ SKYRL_PYTHON: join(made.folder, 'bin/python'), JAX_PLATFORMS: 'cpu', HF_HUB_OFFLINE: '1' },
    },
  })
  const url = `http://127.0.0.1:${port}`
  const until = Date.now() + START_MS
  const isUp = () =>
    fetch(`${url}/api/v1/healthz`).then(
      ({ ok }) => ok,
      () => false,
    )
  while (!(await isUp())) {
    if (server.process.exitCode !== null || Date.now() > until) {
      server.process.kill()
      throw new Error(`SkyRL's server did not start: ${(await server.ended).stderr.slice(-2000)}`)
    }
    await new Promise((resolve) => setTimeout(resolve, 1000))
  }
  return {
    url,
    async close() {
      server.process.kill()
      await server.ended.catch(() => {})
    },
  }
}

/** Python 3.12, also if pyenv has another active: its python3.12 is then a command that refuses to run. */
export async function findPython312(): Promise<string> {
  const versions = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions')
  const kept = await readdir(versions).catch(() => [])
  const ofPyenv = kept.filter((name) => name.startsWith('3.12.')).map((name) => join(versions, name, 'bin/python3.12'))
  for (const python of ['python3.12', ...ofPyenv]) {
    if ((await attempt(python, ['-c', 'import venv'])).code === 0) return python
  }
  throw new Error('python: got none of 3.12 that runs, expected one on the path or of pyenv')
}
