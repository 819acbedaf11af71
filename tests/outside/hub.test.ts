/**
 * Hugging Face's own client pulls what we push, from a server of ours that speaks the hub's addresses. Asked by `npm run test:hub`
 * alone.
 */
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, beforeEach, expect, test } from 'vitest'
import { COMMIT, type HubServer, startHub } from '../language/hub-server.ts'
import { colonnade, MAIN, skipLoudly, start } from '../support/command.ts'
import { findPython, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const PULL = `
import json, sys
from huggingface_hub import snapshot_download, ModelCard
folder = snapshot_download("org/tiny", cache_dir=sys.argv[1])
card = ModelCard.load(folder + "/README.md")
result = card.data.eval_results[0] if card.data.eval_results else None
print(json.dumps({"folder": folder, "tags": card.data.tags, "library": card.data.library_name,
                  "metric": result and [result.metric_type, result.metric_value, result.dataset_name]}))
`

let python: string
let why: string | undefined
beforeAll(async () => {
  if (import.meta.env.MODE !== 'hub') {
    why = "Hugging Face's own client (npm run test:hub asks it)"
    return
  }
  const found = await findPython(['huggingface_hub==2.4.0'], 'huggingface_hub')
  if ('why' in found) throw new Error(found.why)
  python = found.python
}, PYTHON_MS)
beforeEach((context) => {
  if (why !== undefined) skipLoudly(context, why)
})

const sha = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

async function pull(hub: HubServer) {
  const cache = await temporaryFolder()
  const env = { ...process.env, HF_ENDPOINT: hub.endpoint, HF_HUB_DISABLE_XET: '1', HF_HUB_DISABLE_TELEMETRY: '1' }
  const { code, stdout, stderr } = await start(python, ['-c', PULL, cache], { env }).ended
  expect(code, stderr).toBe(0)
  const pulled = JSON.parse(stdout.trim().split('\n').at(-1)!)
  expect(pulled.folder.endsWith(COMMIT)).toBe(true)
  return pulled as { folder: string; tags: string[]; library: string; metric: [string, string, string] | null }
}

test.each([
  ['whole files', undefined],
  ['files in parts', 65_536],
])('a policy is pulled with the same bytes that were pushed: %s', async (_, partBytes) => {
  const here = await temporaryFolder()
  const run = await colonnade(['train', 'CartPole-v1', 'out=run', 'totalSteps=4096', 'mlp.hidden=256'], here)
  expect(run.code, run.stderr).toBe(0)
  const hub = await startHub({})
  hub.partBytes = partBytes
  const env = { ...process.env, HF_ENDPOINT: hub.endpoint, HF_TOKEN: 'hf_secret' }
  const { code, stderr } = await start(process.execPath, [MAIN, 'push', 'run', 'org/tiny'], { cwd: here, env }).ended
  expect(code, stderr).toBe(0)
  const dry = await start(process.execPath, [MAIN, 'push', 'run', 'org/tiny', 'out=dry'], { cwd: here }).ended
  expect(dry.code, dry.stderr).toBe(0)
  const { folder, tags, library, metric } = await pull(hub)
  expect(Object.keys(hub.files)).toHaveLength(6)
  for (const name of Object.keys(hub.files)) {
    expect(sha(readFileSync(join(folder, name))), name).toBe(sha(readFileSync(join(here, 'dry', name))))
  }
  expect({ tags, library }).toEqual({
    tags: ['reinforcement-learning', 'colonnade', 'CartPole-v1'],
    library: 'colonnade',
  })
  expect(metric).toMatchObject(['mean_reward', expect.stringMatching(/^[\d.]+ \+\/- [\d.]+$/), 'CartPole-v1'])
})

test('so is a language model', async () => {
  const here = await temporaryFolder()
  const words = ['languageModel.width=16', 'languageModel.layers=1', 'rl.updates=1', 'sft.updates=2']
  const run = await colonnade(['train', 'text/reverse', 'out=run', ...words], here)
  expect(run.code, run.stderr).toBe(0)
  const hub = await startHub({})
  const env = { ...process.env, HF_ENDPOINT: hub.endpoint, HF_TOKEN: 'hf_secret' }
  const { code, stderr } = await start(process.execPath, [MAIN, 'push', 'run', 'org/tiny'], { cwd: here, env }).ended
  expect(code, stderr).toBe(0)
  const exported = await colonnade(['export', 'run', 'out=model'], here)
  expect(exported.code, exported.stderr).toBe(0)
  const { folder, library } = await pull(hub)
  expect(library).toBe('transformers')
  for (const name of ['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json']) {
    expect(sha(readFileSync(join(folder, name))), name).toBe(sha(readFileSync(join(here, 'model', name))))
  }
})

test("the server that both are tried with takes the client's own upload, too", async () => {
  const here = await temporaryFolder()
  writeFileSync(join(here, 'README.md'), '# Own\n')
  writeFileSync(join(here, 'large.bin'), Buffer.alloc(5000, 7))
  const hub = await startHub({})
  const env = { ...process.env, HF_ENDPOINT: hub.endpoint, HF_TOKEN: 'hf_secret', HF_HUB_DISABLE_XET: '1' }
  const script =
    'import sys; from huggingface_hub import HfApi; HfApi().create_repo("org/tiny", exist_ok=True); HfApi().upload_folder(repo_id="org/tiny", folder_path=sys.argv[1])'
  const { code, stderr } = await start(python, ['-c', script, here], { env }).ended
  expect(code, stderr).toBe(0)
  expect(Object.keys(hub.files).sort()).toEqual(['README.md', 'large.bin'])
  expect(hub.commits).toMatchObject([{ regular: ['README.md'], large: ['large.bin'] }])
})
