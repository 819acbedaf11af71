/**
 * What the real programs list of a run: TensorBoard and trackio from PyPI, which our loggers told of it, and wandb, which
 * `python/wandb_run.py` did. Asked by `npm run test:loggers` alone.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { configureRun, startRun } from '../../src/training/run/run.ts'
import { cached } from '../support/cache.ts'
import { SMALL, type Started, skipLoudly, start } from '../support/command.ts'
import { PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const PACKAGES = ['tensorboard==2.21.0', 'setuptools==80.9.0', 'trackio==0.43.0', 'wandb==0.31.0']
const PROJECT = 'colonnade-test'

/** Prints the history of an offline run: records in LevelDB's log format, after a header of 7 bytes. */
const WANDB_HISTORY = `
import glob, json, sys
from wandb.proto import wandb_internal_pb2 as pb
data = open(glob.glob(sys.argv[1] + '/*.wandb')[0], 'rb').read()
at, parts, told = 7, b'', []
while at + 7 <= len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    length, kind = int.from_bytes(data[at + 4:at + 6], 'little'), data[at + 6]
    parts += data[at + 7:at + 7 + length]
    at += 7 + length
    if kind in (1, 4):
        record = pb.Record()
        record.ParseFromString(parts)
        parts = b''
        if record.WhichOneof('record_type') == 'history':
            told.append({item.key or '/'.join(item.nested_key): json.loads(item.value_json) for item in record.history.item})
print(json.dumps(told))
`

let why = ''
let programs = ''
let folder = ''
let started: Started[] = []
let lines: Record<string, number | Record<string, number>>[] = []
let trackioUrl = ''

beforeAll(async () => {
  if (import.meta.env.MODE !== 'loggers') {
    why = 'TensorBoard and trackio (npm run test:loggers asks them)'
    return
  }
  const made = await cached('python-tensorboard-2.21.0-trackio-0.43.0-wandb-0.31.0', async (_, run) => {
    await run('python3', ['-m', 'venv', '.'])
    await run('./bin/python', ['-m', 'pip', 'install', '--quiet', '--only-binary=:all:', ...PACKAGES])
  })
  if ('why' in made) {
    why = made.why
    return
  }
  programs = join(made.folder, 'bin')
  folder = await temporaryFolder()
  const trackio = begin(['-c', 'import trackio; trackio.show(open_browser=False)'], {
    TRACKIO_DIR: join(folder, 'trackio'),
    TRACKIO_WRITE_TOKEN: 'secret',
  })
  trackioUrl = await printedUrl(trackio)
  process.env.TRACKIO_WRITE_TOKEN = 'secret'
  const loggers = `tensorboard,trackio:${trackioUrl}|project=${PROJECT}`
  const texts = Object.fromEntries(SMALL.map((word) => word.split('=')))
  const run = join(folder, 'runs', 'first')
  const definition = await configureRun('CartPole-v1', { ...texts, loggers, threads: '1' })
  await (await startRun(definition, run)).train()
  const text = await readFile(join(run, 'metrics.jsonl'), 'utf8')
  lines = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
}, PYTHON_MS)

afterAll(async () => {
  for (const { process, ended } of started) {
    process.kill('SIGKILL')
    await ended
  }
})

function begin(words: readonly string[], env: Readonly<Record<string, string>> = {}): Started {
  const one = start(join(programs, 'python'), words, { timeout: PYTHON_MS, env: { ...process.env, ...env } })
  started = [...started, one]
  return one
}

/** The first address that a server says. */
function printedUrl({ process, ended }: Started): Promise<string> {
  return new Promise((resolve, reject) => {
    for (const stream of [process.stdout!, process.stderr!]) {
      let said = ''
      stream.on('data', (chunk: string) => {
        said += chunk
        const [, url] = /(http:\/\/[\w.]+:\d+)\D/.exec(said) ?? []
        if (url !== undefined) resolve(url)
      })
    }
    ended.then(({ stderr }) => reject(new Error(stderr)), reject)
  })
}

/** The numbers of each line by their names, as loggers name them. */
const expected = () =>
  lines.map((line) => {
    const flat = Object.entries(line).flatMap(([name, value]): [string, number][] =>
      typeof value === 'object' && value !== null
        ? Object.entries(value).map(([key, number]) => [`${name}/${key}`, number])
        : [[name, value as number]],
    )
    return Object.fromEntries(flat.filter(([, value]) => value !== null))
  })

describe('what others list of a run', () => {
  test(
    'TensorBoard: the same scalars with the same values, and the settings',
    async (context) => {
      if (why !== '') skipLoudly(context, why)
      const url = await printedUrl(begin(['-m', 'tensorboard.main', '--logdir', join(folder, 'runs'), '--port', '0']))
      const ask = async (path: string, body?: object) => {
        const response = await fetch(url.replace(/\/\/[^:]+/, '//127.0.0.1') + path, {
          ...(body === undefined
            ? {}
            : {
                method: 'POST',
                headers: { 'content-type': 'application/json' },
                body: JSON.stringify(body),
              }),
        })
        return JSON.parse(await response.text())
      }
      let tags: Record<string, object> = {}
      while (Object.keys(tags).length === 0) tags = (await ask('/data/plugin/scalars/tags'))['first/tensorboard'] ?? {}
      const wanted = expected()
      expect(Object.keys(tags).sort()).toEqual([...new Set(wanted.flatMap(Object.keys))].sort())
      for (const tag of Object.keys(tags)) {
        const points = await ask(
          `/data/plugin/scalars/scalars?run=first%2Ftensorboard&tag=${encodeURIComponent(tag)}&format=json`,
        )
        const told = wanted.flatMap((line, i) => (line[tag] === undefined ? [] : [[i + 1, Math.fround(line[tag])]]))
        expect(
          points.map(([, step, value]: number[]) => [step, value]),
          tag,
        ).toEqual(told)
      }
      const experiment = await ask('/data/plugin/hparams/experiment', {})
      const names = experiment.hparamInfos.map(({ name }: { name: string }) => name)
      expect(names).toContain('ppo.gamma')
    },
    PYTHON_MS,
  )

  test(
    'trackio: the same',
    async (context) => {
      if (why !== '') skipLoudly(context, why)
      const response = await fetch(`${trackioUrl}/api/get_logs`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ project: PROJECT, run: 'first' }),
      })
      const answer = await response.json()
      const logs = (Array.isArray(answer) ? answer : (answer.data ?? answer.logs)) as Record<string, unknown>[]
      expect(logs).toHaveLength(lines.length)
      for (const [i, line] of expected().entries()) expect(logs[i]).toMatchObject({ ...line, step: i + 1 })
    },
    PYTHON_MS,
  )

  test(
    'Weights & Biases: the same, in an offline run',
    async (context) => {
      if (why !== '') skipLoudly(context, why)
      const script = new URL('../../python/wandb_run.py', import.meta.url).pathname
      const told = await begin([script, join(folder, 'runs', 'first'), '--project', PROJECT, '--dir', folder]).ended
      expect(told.code, told.stderr).toBe(0)
      const read = await begin(['-c', WANDB_HISTORY, told.stdout.trim().split('\n').at(-1)!]).ended
      expect(read.code, read.stderr).toBe(0)
      const history = JSON.parse(read.stdout)
      expect(history).toHaveLength(lines.length)
      for (const [i, line] of expected().entries()) expect(history[i]).toMatchObject({ ...line, _step: i + 1 })
    },
    PYTHON_MS,
  )
})
