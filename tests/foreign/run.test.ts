/**
 * Runs that a stranger made: links, pipes, devices and files that lie. Each attack is a row: what is planted in a run, what a user does
 * with it, and what is said. Nothing outside the run is read, written or deleted, and nothing that is planted runs.
 */
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { appendFile, cp, mkdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tableFromArrays, tableToIPC } from 'apache-arrow'
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { within } from '../../src/base/files/files.ts'
import { type Dashboard, openDashboard } from '../../src/entries/loggers.ts'
import { configureRun, startRun } from '../../src/index.ts'
import { reachOf, refuseReach } from '../../src/training/run/reach.ts'
import { inProcess, SMALL } from '../support/command.ts'
import { metricLines, writeRun } from '../support/run-folders.ts'
import { contents, temporaryFolder } from '../support/temporary.ts'
import { isThorough } from '../support/tiers.ts'

const SECRET = 'the-secret-of-another-folder'
/** Steers a terminal, and turns letters around. */
const STEERING = '\u001b]0;owned\u0007\u001b[2J\u202egpj'

let model: string
let base: string
let run: string
/** What lies elsewhere, and has the names that a run has. */
let outside: string
let opened: Dashboard | undefined

beforeAll(async () => {
  model = join(await temporaryFolder(), 'run')
  const settings = Object.fromEntries(
    [...SMALL, 'totalSteps=512', 'rollouts=all', 'threads=1'].map((word) => word.split('=')),
  )
  await (await startRun(await configureRun('CartPole-v1', settings), model)).train()
})
beforeEach(async () => {
  base = await temporaryFolder()
  run = join(base, 'run')
  outside = join(base, 'outside')
  await cp(model, run, { recursive: true })
  await mkdir(join(outside, '00000099'), { recursive: true })
  const names = [
    'secret.json',
    '00000001.arrow',
    '00000099.arrow',
    '00000099/manifest.json',
    'x.tmp',
    'summary.json.1.tmp',
  ]
  for (const name of names) await writeFile(join(outside, name), `{"colonnade": "${SECRET}"}\n`)
})
afterEach(async () => {
  await opened?.close()
  opened = undefined
})

/** What may stand in the place of a file or a folder of the run. */
const kinds: Readonly<Record<string, (path: string) => Promise<void> | void>> = {
  'a link to a file': (path) => symlink(join(outside, 'secret.json'), path),
  'a link to a folder': (path) => symlink(outside, path),
  'a link to nothing': (path) => symlink(join(base, 'nothing'), path),
  'a link to a device': (path) => symlink('/dev/zero', path),
  'a link to itself': (path) => symlink(path, path),
  'a pipe': (path) => void execFileSync('mkfifo', [path]),
}

/** The commands that read or write a run. */
const commands: Readonly<Record<string, () => readonly string[]>> = {
  resume: () => ['resume', run, 'totalSteps=1024'],
  evaluate: () => ['evaluate', run, 'episodes=1'],
  'export of rollouts': () => ['export', run, `out=${join(base, 'out.arrow')}`],
  'export of a policy': () => ['export', run, `out=${join(base, 'out.onnx')}`],
  push: () => ['push', run, 'me/run', `out=${join(base, 'pushed')}`, 'episodes=0'],
}

/** Which commands need what; those that do not read it may do their work. */
const places: readonly (readonly [place: string, commands: readonly string[]])[] = [
  ['config.json', ['resume', 'evaluate', 'push']],
  ['metrics.jsonl', ['resume']],
  ['summary.json', ['resume', 'push']],
  ['run.log', ['resume']],
  ['learning-curve.svg', ['resume', 'push']],
  ['checkpoints', ['resume', 'evaluate', 'export of a policy']],
  ['checkpoints/00000002', ['evaluate', 'resume']],
  ['checkpoints/00000002/manifest.json', ['evaluate']],
  ['checkpoints/00000002/columns.safetensors', ['evaluate']],
  ['rollouts', ['resume', 'export of rollouts']],
  ['rollouts/00000001.arrow', ['export of rollouts']],
  ['.owner-0123456789abcdef', ['resume']],
]

const told =
  /^colonnade: [^\n]*(got|\() ?[^\n]*(a link or a special file|a symbolic link|not a plain file)[^\n]*expected [^\n]*\n$/

describe.each(Object.keys(kinds))('%s', (kind) => {
  test.each(places)('in the place of %s is refused by %j, in one line', async (place, needed) => {
    await rm(join(run, place), { recursive: true, force: true })
    await kinds[kind]!(join(run, place))
    const before = await contents(outside)
    for (const name of needed) {
      const { code, stdout, stderr } = await inProcess(commands[name]!())
      expect([name, code, stderr]).toEqual([name, 1, expect.stringMatching(told)])
      expect(stdout + stderr).not.toContain(SECRET)
    }
    expect(await contents(outside)).toEqual(before)
  })
})

test('a name of a run that steers the terminal is shown as escapes', async () => {
  const steering = join(base, STEERING)
  await cp(run, steering, { recursive: true })
  for (const name of ['resume', 'evaluate'] as const) {
    const { code, stdout, stderr } = await inProcess([name, steering])
    expect([name, code]).toEqual([name, 0])
    expect(/\p{Cc}|\u202e/u.test((stdout + stderr).replaceAll(/[\n\t]/g, ''))).toBe(false)
  }
})

test('claims of many other machines are looked at together', { timeout: 12_000 }, async () => {
  for (let i = 0; i < 40; i++) {
    const claim = join(run, `.owner-${String(i).padStart(16, '0')}`)
    await mkdir(join(claim, 'held'), { recursive: true })
    await writeFile(join(claim, 'owner.json'), '{"host":"elsewhere","beatSeconds":0.2}') // Gone after 1.2 s.
  }
  expect((await inProcess(['resume', run])).code).toBe(0)
})

test('a config file of many keys is refused before it is parsed', async () => {
  const file = join(base, 'many.yaml')
  await writeFile(file, Array.from({ length: 2e5 }, (_, i) => `k${i}: 1`).join('\n'))
  const { code, stderr } = await inProcess(['train', 'CartPole-v1', `config=${file}`])
  expect([code, stderr]).toEqual([
    1,
    expect.stringMatching(/^colonnade: [^\n]*, more than the limit of 65536[^\n]*, expected [^\n]*\n$/),
  ])
})

test('a run that is named by a link is a run', async () => {
  await symlink(run, join(base, 'latest'))
  expect(await inProcess(['evaluate', join(base, 'latest'), 'episodes=1'])).toMatchObject({ code: 0, stderr: '' })
  expect(await inProcess(['resume', join(base, 'latest'), 'totalSteps=768'])).toMatchObject({ code: 0 })
})

/** More than any run has: the thorough tier tries much more. */
const [OBJECTS, LAYERS, NAMES] = isThorough ? [100_000, 1_000_000, 200_000] : [20_000, 100_000, 50_000]

describe('loggers write in the run alone, and tell why one does not', () => {
  test.each(['tensorboard', 'log.jsonl', 'metrics.csv'])('%s', async (name) => {
    const logger = name === 'log.jsonl' ? 'jsonl' : name === 'metrics.csv' ? 'csv' : name
    const settings = Object.fromEntries(
      [...SMALL, 'totalSteps=512', `loggers=${logger}`].map((word) => word.split('=')),
    )
    const logged = join(base, 'logged')
    await (await startRun(await configureRun('CartPole-v1', settings), logged)).train()
    await rm(join(logged, name), { recursive: true })
    await symlink(name === 'tensorboard' ? outside : join(outside, 'secret.json'), join(logged, name))
    const before = await contents(outside)
    const { code, stderr } = await inProcess(['resume', logged, 'totalSteps=768'])
    expect([code, stderr]).toEqual([0, expect.stringContaining('a link or a special file')])
    expect(await contents(outside)).toEqual(before)
  })
})

/** The page of the folder with these runs, as it answers. */
async function page(): Promise<{
  runs: { id: string; notes: string[]; status: string; replayTime: number | null }[]
  ask(path: string, query: Record<string, string>): Promise<{ status: number; text: string }>
}> {
  opened = await openDashboard({ folder: base, port: 0 })
  const { url } = opened
  let runs: never[] = []
  // The first look may still be under way: a run is there once its metrics have been read.
  while (runs.length === 0 || runs.some(({ isSkimmed }) => isSkimmed))
    ({ runs } = (await (await fetch(`${url}/api/runs`)).json()) as { runs: never[] })
  return {
    runs,
    ask: async (path, query) => {
      const response = await fetch(`${url}/api/${path}?${new URLSearchParams(query)}`)
      return { status: response.status, text: await response.text() }
    },
  }
}

describe('the page', () => {
  test.each(
    ['config.json', 'metrics.jsonl', 'summary.json', 'replay.gif'].flatMap((place) =>
      Object.keys(kinds).map((kind) => [place, kind]),
    ),
  )('lists a run whose %s is %s with that fault, and all others', async (place, kind) => {
    await writeRun(join(base, 'a'), { metrics: metricLines({ update: 1 }), status: 'complete' })
    await writeRun(join(base, 'z'), { metrics: metricLines({ update: 1 }), status: 'complete' })
    await rm(join(run, place!), { force: true })
    await kinds[kind!]!(join(run, place!))
    const { runs, ask } = await page()
    expect(runs.map(({ id }) => id).sort()).toEqual(['a', 'run', 'z'])
    const notes = runs.find(({ id }) => id === 'run')!.notes
    expect(notes).toEqual([
      expect.stringMatching(new RegExp(`^${place} cannot be read \\((a symbolic link|not a plain file)`)),
    ])
    const replay = await ask('replay', { run: 'run' })
    expect(replay.status).toBe(place === 'replay.gif' ? 400 : 404)
    expect(JSON.stringify(runs) + replay.text).not.toContain(SECRET)
  })

  test.each(Object.keys(kinds))('serves no rows of %s', async (kind) => {
    await rm(join(run, 'rollouts/00000001.arrow'))
    await kinds[kind]!(join(run, 'rollouts/00000001.arrow'))
    const { ask } = await page()
    expect(JSON.parse((await ask('files', { run: 'run' })).text).files.length).toBeGreaterThan(1)
    const asked = await ask('rows', { run: 'run', file: 'rollouts/00000001.arrow' })
    expect([asked.status, asked.text]).toEqual([400, expect.stringContaining('a link or a special file')])
    await rm(join(run, 'rollouts'), { recursive: true })
    await kinds[kind]!(join(run, 'rollouts'))
    for (const path of ['files', 'rows', 'conversations']) {
      const other = await ask(path, { run: 'run', file: 'rollouts/00000099.arrow' })
      expect([path, other.status, other.text]).toEqual([path, 400, expect.stringContaining('a link or a special file')])
    }
  })

  test.each([
    '../outside/secret.json',
    '/etc/passwd',
    'rollouts/../../outside/00000001.arrow',
    'rollouts\\..\\x.arrow',
    '',
  ])('serves no file by the way %j', async (file) => {
    const { ask } = await page()
    const asked = await ask('rows', { run: 'run', file })
    expect(asked.status).toBe(404)
    expect(asked.text).not.toContain(SECRET)
    for (const id of ['../run', '..', base, 'run/../../outside'])
      expect((await ask('files', { run: id })).status).toBe(404)
  })

  const deep = (depth: number) => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`
  test.each<readonly [name: string, plant: () => Promise<void>, note: RegExp | null]>([
    [
      'a config.json of 4 GiB',
      () => truncate(join(run, 'config.json'), 2 ** 32),
      /^config\.json cannot be read \(a file of 4294967296 bytes/,
    ],
    [
      'a summary.json of 4 GiB',
      () => truncate(join(run, 'summary.json'), 2 ** 32),
      /^summary\.json cannot be read \(a file of/,
    ],
    [
      'settings 20,000 deep',
      () => config(`{"colonnade":"0.1.0","settings":${deep(20_000)}}`),
      /^config\.json cannot be shown/,
    ],
    [
      'parameters 20,000 deep',
      () => config(`{"colonnade":"0.1.0","environment":{"id":"a","parameters":${deep(20_000)}}}`),
      /cannot be shown/,
    ],
    [
      'an id that has its own toString',
      () => config('{"colonnade":"0.1.0","environment":{"id":{"toString":1}}}'),
      null,
    ],
    ['a version that has its own toString', () => config('{"colonnade":{"toString":1}}'), null],
    ['parts that are numbers', () => config('{"colonnade":1,"environment":2,"algorithm":3,"settings":4,"rl":5}'), null],
    [
      'parts that are null',
      () => config('{"colonnade":null,"environment":null,"rl":{"parameters":null},"settings":null}'),
      null,
    ],
    [
      'keys of prototypes',
      () =>
        config(
          '{"colonnade":"0.1.0","__proto__":{"stolen":1},"settings":{"__proto__":{"stolen":1},"constructor":{"prototype":{"stolen":1}}}}',
        ),
      null,
    ],
    [
      'a word of a million letters',
      () => config(`{"colonnade":"0.1.0","environment":{"id":"${'x'.repeat(1e6)}"}}`),
      null,
    ],
    ['a config.json that is a list', () => config('["colonnade"]'), /^config\.json cannot be read/],
    ['metrics 20,000 deep', () => appendFile(join(run, 'metrics.jsonl'), `${deep(20_000)}\n`), /1 damaged lines/],
    [
      '100,000 figures',
      () =>
        appendFile(
          join(run, 'metrics.jsonl'),
          metricLines(Object.fromEntries(Array.from({ length: 1e5 }, (_, i) => [`f${i}`, i]))),
        ),
      /more than the \d+ metrics/,
    ],
    [
      `${OBJECTS} objects of figures`,
      () =>
        appendFile(
          join(run, 'metrics.jsonl'),
          metricLines(Object.fromEntries(Array.from({ length: OBJECTS }, (_, i) => [`f${i}`, {}]))),
        ),
      /more than the \d+ metrics/,
    ],
    [
      'figures named as prototypes',
      () =>
        appendFile(
          join(run, 'metrics.jsonl'),
          '{"__proto__":{"stolen":1},"constructor":2,"toString":3,"hasOwnProperty":4}\n',
        ),
      null,
    ],
    ...(isThorough
      ? [['a line without an end of 256 MiB', () => truncate(join(run, 'metrics.jsonl'), 2 ** 28), /damaged/] as const]
      : []),
  ])('shows a run with %s, and all others', async (_, plant, note) => {
    await writeRun(join(base, 'z'), { metrics: metricLines({ update: 1 }), status: 'complete' })
    await plant()
    const { runs } = await page()
    expect(runs.map(({ id }) => id)).toEqual(['run', 'z'])
    const notes = runs[0]!.notes.join('\n')
    if (note !== null) expect(notes).toMatch(note)
    expect(JSON.stringify(runs).length).toBeLessThan(1e6)
    expect(({} as { stolen?: number }).stolen).toBeUndefined()
  })
  const config = (text: string) => writeFile(join(run, 'config.json'), text)
})

describe('a config.json that lies', () => {
  const change = async (edit: (config: Config) => unknown) => {
    const config = JSON.parse(await readFile(join(run, 'config.json'), 'utf8'))
    const changed = edit(config)
    await writeFile(join(run, 'config.json'), typeof changed === 'string' ? changed : JSON.stringify(config))
  }
  type Config = Record<string, Record<string, unknown>>

  test.each<readonly [name: string, edit: (config: Config) => unknown]>([
    ['a module of the run', (config) => Object.assign(config.environment!, { id: 'x', module: './evil.mjs' })],
    [
      'a module by a way that leads around',
      (config) => Object.assign(config.environment!, { id: 'x', module: 'rollouts/../evil.mjs' }),
    ],
    [
      'a module that is a text',
      (config) => Object.assign(config.policy!, { id: 'x', module: 'data:text/javascript,globalThis.stolen=1' }),
    ],
    [
      'a module of a server',
      (config) => Object.assign(config.policy!, { id: 'x', module: 'http://127.0.0.1:9/evil.mjs' }),
    ],
    ['a module of Node', (config) => Object.assign(config.algorithm!, { id: 'x', module: 'node:child_process' })],
    [
      'a wrapper of a module',
      (config) => Object.assign(config.environment!, { wrappers: [{ id: 'x', parameters: {}, module: './evil.mjs' }] }),
    ],
    ['modules that are no texts', (config) => Object.assign(config.environment!, { module: { toString: 1 } })],
    [
      'wrappers 20,000 deep',
      (config) => {
        Object.assign(config.environment!, { wrappers: 'HERE' })
        const wrappers = `${'[{"id":"x","module":"y","wrappers":'.repeat(20_000)}[]${'}]'.repeat(20_000)}`
        return JSON.stringify(config).replace('"HERE"', wrappers)
      },
    ],
    ['wrappers that are none', (config) => Object.assign(config.environment!, { wrappers: 7 })],
    ['a part that is a number', (config) => Object.assign(config, { policy: 5 })],
    ['a part that is null', (config) => Object.assign(config, { environment: null })],
    [
      'settings of prototypes',
      (config) => Object.assign(config, { settings: JSON.parse('{"__proto__":{"numLanes":4}}') }),
    ],
    [
      'parameters of prototypes',
      (config) =>
        Object.assign(config.policy!, { parameters: JSON.parse('{"__proto__":{"hidden":"4"},"constructor":1}') }),
    ],
    [
      'an id that is a property of objects',
      (config) => Object.assign(config.environment!, { id: 'constructor', module: undefined }),
    ],
    ['an id that is __proto__', (config) => Object.assign(config.algorithm!, { id: '__proto__' })],
    [
      `${LAYERS} layers`,
      (config) => Object.assign(config.policy!, { parameters: { hidden: Array.from({ length: LAYERS }, () => 1) } }),
    ],
    [
      'layers beyond all memory',
      (config) => Object.assign(config.policy!, { parameters: { hidden: '1000000000,1000000000' } }),
    ],
    ['words that steer the terminal', (config) => Object.assign(config.environment!, { id: STEERING })],
    ['keys that steer the terminal', (config) => Object.assign(config.settings!, { [STEERING]: 1 })],
  ])('%s is refused by resume and evaluate in one line, and nothing runs', async (_, edit) => {
    const mark = join(base, 'mark')
    await writeFile(
      join(run, 'evil.mjs'),
      `import { writeFileSync } from 'node:fs'\nwriteFileSync(${JSON.stringify(mark)}, '1')`,
    )
    await change(edit)
    for (const name of ['resume', 'evaluate']) {
      const { code, stderr } = await inProcess(commands[name]!())
      expect([name, code, stderr]).toEqual([name, 1, expect.stringMatching(/^colonnade: [^\n]*, expected [^\n]*\n$/)])
      expect(/\p{Cc}|\u202e/u.test(stderr.replaceAll('\n', ''))).toBe(false)
    }
    expect(existsSync(mark)).toBe(false)
    expect((globalThis as { stolen?: number }).stolen).toBeUndefined()
  })
})

describe('a module that is looked through before it is allowed', () => {
  test.each<readonly [name: string, plant: (path: string) => Promise<unknown>]>([
    ['8 GiB', (path) => truncate(path, 2 ** 33)],
    [`names of ${NAMES} files`, (path) => writeFile(path, Array.from({ length: NAMES }, (_, i) => `'./${i}'`).join())],
    ['the name of one of 2 GiB', (path) => writeFile(path, "'./columns'").then(() => truncate(columns(), 2 ** 31))],
    [
      'the name of one that never ends',
      (path) => writeFile(path, "'/../../../../../../../proc/kmsg'".replace("'/", "'")),
    ],
  ])('has not %s', async (_, plant) => {
    await writeFile(join(run, 'evil.mjs'), '')
    await writeFile(columns(), '')
    await plant(join(run, 'evil.mjs'))
    const config = JSON.parse(await readFile(join(run, 'config.json'), 'utf8'))
    config.environment = { id: 'x', module: './evil.mjs', parameters: {} }
    await writeFile(join(run, 'config.json'), JSON.stringify(config))
    const { code, stderr } = await inProcess(commands.evaluate!())
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/^colonnade: module [^\n]*, expected plain files of [^\n]*\n$/),
    ])
  })
  const columns = () => join(run, 'columns')
})

describe('a config.json decides on nothing outside its folder', () => {
  test.each<readonly [words: string]>([
    ['jsonl:OUTSIDE/secret.json'],
    ['jsonl|path=OUTSIDE/secret.json'],
    ['jsonl:OUTSIDE|kept=0'],
    ['csv:OUTSIDE/secret.json'],
    ['tensorboard:OUTSIDE'],
    ['mlflow:http://127.0.0.1:9'],
    ['trackio|url=http://127.0.0.1:9'],
    ['prometheus:0|host=0.0.0.0'],
  ])('loggers=%s is told again by whoever resumes', async (words) => {
    const loggers = words.replace('OUTSIDE', outside)
    const config = JSON.parse(await readFile(join(run, 'config.json'), 'utf8'))
    config.settings.loggers = [loggers]
    await writeFile(join(run, 'config.json'), JSON.stringify(config))
    await rm(join(run, 'checkpoints'), { recursive: true }) // From the start: what others left is moved on, or removed.
    const before = await contents(outside)
    const { code, stderr } = await inProcess(['resume', run])
    const expected = `loggers given by you, since it runs, writes or sends outside the run: loggers='${loggers}', or others`
    expect([code, stderr]).toEqual([
      1,
      `colonnade: loggers of ${run}: got ${loggers} from its config.json only, expected ${expected}\n`,
    ])
    expect(await contents(outside)).toEqual(before)
    expect((await inProcess(['resume', run, 'loggers=jsonl', 'totalSteps=256'])).code).toBe(0)
  })

  test.each([
    [{ engine: ['vllm:http://127.0.0.1:9'], engineSettings: ['apiKeyVariable=HOME'] }, ['engine', 'engineSettings']],
    [{ engine: ['vllm:http://127.0.0.1:9'], engineSettings: ['weights=/etc'] }, ['engine', 'engineSettings']],
    [
      { backend: 'tinker:http://127.0.0.1:9', backendSettings: ['apiKeyVariable=HOME'] },
      ['backend', 'backendSettings'],
    ],
    [{ engine: ['vllm:http://127.0.0.1:9'], engineSettings: ['model=a'], loggers: ['csv', 'mlflow'] }, []],
    [{ loggers: ['jsonl|path=/etc/motd'] }, ['loggers']],
    [{ loggers: ['csv', 'jsonl:'] }, ['loggers']],
    [{ loggers: ['/project/mine.mjs'] }, []],
  ])('%j: of it is told again %j', (settings, keys) => {
    expect(Object.keys(reachOf(settings))).toEqual(keys)
    if (keys.length > 0) expect(() => refuseReach('run', settings, new Map())).toThrow(/^(engine|backend|loggers)/)
    refuseReach('run', settings, new Map(keys.map((key) => [key, ''])))
  })
})

describe('files that lie about their sizes', () => {
  test.each<readonly [name: string, plant: () => Promise<void>, words: () => readonly string[]]>([
    ['a header of 2^60 bytes', () => tensors(BigInt(2) ** 60n, ''), commands.evaluate!],
    ['a header of a million brackets', () => tensors(1_000_000n, '['.repeat(1_000_000)), commands.evaluate!],
    [
      'columns of 4 GiB',
      () => truncate(join(run, 'checkpoints/00000002/columns.safetensors'), 2 ** 32),
      commands.evaluate!,
    ],
    [
      'a manifest of 4 GiB',
      () => truncate(join(run, 'checkpoints/00000002/manifest.json'), 2 ** 32),
      commands.evaluate!,
    ],
    ['metrics of 4 GiB', () => truncate(join(run, 'metrics.jsonl'), 2 ** 32), commands.resume!],
    ['a config.json of 4 GiB', () => truncate(join(run, 'config.json'), 2 ** 32), commands.evaluate!],
    [
      'lanes beyond all memory',
      async () => {
        const config = JSON.parse(await readFile(join(run, 'config.json'), 'utf8'))
        config.settings.numLanes = 1e12
        await writeFile(join(run, 'config.json'), JSON.stringify(config))
      },
      commands.resume!,
    ],
    [
      'rows that are not there',
      () => rows((bytes) => bytes.subarray(0, bytes.length >> 1)),
      commands['export of rollouts']!,
    ],
    [
      'rows of another shape',
      () => rows(() => tableToIPC(tableFromArrays({ [STEERING]: Float32Array.of(1) }), 'file')),
      commands['export of rollouts']!,
    ],
  ])('%s are refused in one line', async (_, plant, words) => {
    await plant()
    const { code, stderr } = await inProcess(words())
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^colonnade: [^\n]*, expected [^\n]*\n$/)])
    expect(/\p{Cc}|\u202e/u.test(stderr.replaceAll('\n', ''))).toBe(false)
  })
  const tensors = (length: bigint, header: string) => {
    const head = Buffer.alloc(8)
    head.writeBigUInt64LE(length)
    return writeFile(join(run, 'checkpoints/00000002/columns.safetensors'), Buffer.concat([head, Buffer.from(header)]))
  }
  const rows = async (change: (bytes: Uint8Array) => Uint8Array) => {
    const path = join(run, 'rollouts/00000001.arrow')
    await writeFile(path, change(await readFile(path)))
  }
})

describe('a way into a folder', () => {
  test.each(['..', '../x', 'a/../../x', '/etc/passwd', 'a//b', '.', '', 'a\0b', 'a\\b'])('%j is none', async (name) => {
    await expect(within(run, name)).rejects.toThrow('expected a path below it')
  })

  test('may end at what is not there, and goes through no file', async () => {
    expect(await within(run, 'none/at/all')).toBe(join(run, 'none/at/all'))
    await expect(within(run, 'config.json', 'x')).rejects.toThrow('got a file, expected a folder')
  })
})
