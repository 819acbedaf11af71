/**
 * Damages files and reads them with every reader: `npm run fuzz -- [cases=10500] [seed=1] [reader=NAME] [timeoutMs=3000]`. Prints a
 * table and one JSON line, and exits with 1 where a reader hung beyond its limit, died, threw anything but an InputError, or
 * took a file with other contents that carries a checksum of ours. A case is known by its seed and number:
 * `first=N cases=1` runs it again. The readers work in a process of their own, which is started again when it hangs or dies.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { drawer } from './drawer.mjs'

const built = (path) => new URL(`../dist/src/${path}`, import.meta.url).href
const golden = (path) => fileURLToPath(new URL(`../tests/golden/${path}`, import.meta.url))
const options = { cases: 10_500, first: 0, seed: 1, timeoutMs: 3000, reader: '', isWorker: '' }
for (const word of process.argv.slice(2)) {
  const [name, value] = word.split('=')
  if (!(name in options) || !value)
    throw new Error(`${word}: expected one of ${Object.keys(options).join(', ')} with =`)
  options[name] = typeof options[name] === 'number' ? Number(value) : value
}
/** Beyond a reader's own limit of time: starting a thread, on a machine that is busy. */
const GRACE_MS = 60_000

/** Words that text formats stumble over. */
const WORDS = [
  'null',
  '1e999',
  '-1',
  '9007199254740993',
  '{}',
  '[]',
  '""',
  '"__proto__"',
  '[[[[',
  '}',
  '\\ud800',
  '{%',
  '}}',
]

/** Another file than this one. */
function damage(bytes, random) {
  let copy = Uint8Array.from(bytes)
  for (let times = 1 + random(3); times > 0; times--) {
    const at = random(copy.length)
    const kind = random(8)
    if (kind <= 1) copy[at] ^= 1 << random(8)
    else if (kind === 2) copy[at] = random(256)
    else if (kind === 3) copy.fill(random(2) * 255, at, at + 1 + random(8))
    else if (kind === 4) copy = copy.slice(0, at)
    else if (kind === 5) copy.copyWithin(at, random(copy.length), random(copy.length))
    else if (kind === 6)
      copy = new Uint8Array(Buffer.concat([copy.subarray(0, at), copy.subarray(at + 1 + random(16))]))
    else {
      const word = Buffer.from(WORDS[random(WORDS.length)])
      copy = new Uint8Array(Buffer.concat([copy.subarray(0, at), word, copy.subarray(at + random(8))]))
    }
    if (copy.length === 0) break
  }
  return Buffer.compare(copy, bytes) === 0 ? damage(bytes, random) : copy
}

/** Each reader: files that it reads, of which one is damaged, and what they hold as text. `isSealed`: they carry a checksum. */
async function readers(folder) {
  const { configureRun, openRun, resumeRun, startRun, writeArrow } = await import(built('index.js'))
  const { loadSamplesFromJsonl } = await import(built('entries/compat.js'))
  const { readSafetensors, tensorOf, writeSafetensors } = await import(built('entries/data.js'))
  const { readRows } = await import(built('language/datasets/rows.js'))
  const { readTrajectories, writeTrajectories } = await import(built('tables/trajectories/trajectory-table.js'))
  const { Trajectories } = await import(built('tables/trajectories/trajectories.js'))
  const { readCheckpoint } = await import(built('training/folder/checkpoint.js'))
  const { encodeSafetensors } = await import(built('base/files/safetensors.js'))
  const { lora } = await import(built('language/transformer/lora.js'))
  const { loadLora, saveLora } = await import(built('language/transformer/lora-folder.js'))
  const { loadTransformer } = await import(built('language/transformer/folder.js'))
  const { loadTokenizer } = await import(built('language/tokenizers/load-tokenizer.js'))
  const { readArrowFiles } = await import(built('tables/read-arrow.js'))
  const { tableFromArrays, tableToIPC } = await import('apache-arrow')
  const limits = { timeoutMs: options.timeoutMs }
  const at = (name) => join(folder, name)
  const rows = async (path) => {
    const found = []
    for await (const { row } of readRows(path, { limits })) found.push(row)
    return JSON.stringify(found)
  }
  const tensorsOf = async (path) => {
    const { tensors, metadata } = await readSafetensors(path)
    return JSON.stringify([[...tensors.values()].map(({ bytes, ...rest }) => [rest, [...bytes]]), metadata])
  }
  const arrowOf = async (path) => {
    const table = await readArrowFiles([path], limits)
    return JSON.stringify([table.schema.fields.map(String), [...table.schema.metadata], table.toArray().map(String)])
  }

  const columns = { prompt: ['one', 'two', 'three'], n: Float32Array.of(1, 2, 3), id: Int32Array.of(7, 8, 9) }
  const table = tableFromArrays(columns)
  for (const format of ['file', 'stream']) await writeArrow(at(`own-${format}.arrow`), table, { format })
  await writeFile(at('foreign-file.arrow'), tableToIPC(table, 'file'))
  await writeFile(at('foreign-stream.arrow'), tableToIPC(table, 'stream'))
  const parquet = ['questions-none', 'questions-snappy', 'questions-gzip', 'questions-brotli', 'conversations']
  for (const name of parquet) await cp(golden(`datasets/${name}.parquet`), at(`${name}.parquet`))
  await cp(golden('datasets/conversations.arrow'), at('conversations.arrow'))

  const tensors = [tensorOf('a.weight', Float32Array.of(1, 2, 3, 4), [2, 2]), tensorOf('b', Int32Array.of(5, 6))]
  await writeSafetensors(at('own.safetensors'), tensors, { format: 'pt' })
  await writeFile(at('foreign.safetensors'), Buffer.concat(encodeSafetensors(tensors, { format: 'pt' })))

  const examples = [1, 2, 3, 4].map((n) => ({ prompt: `${n}+1=`, answer: `${n + 1}`, level: n }))
  await writeFile(at('prompts.jsonl'), examples.map((example) => `${JSON.stringify(example)}\n`).join(''))
  await writeFile(at('prompts.json'), JSON.stringify(examples))
  const lists = {
    tokens: [5, 6, 7, 8],
    lossMask: [0, 0, 1, 1],
    rolloutLogProbs: [null, null, -0.5, -1],
    weightVersions: [-1, -1, 0, 0],
  }
  const sample = { prompt: 'p', response: 'c', reward: 1, groupIndex: 0, ...lists }
  await writeFile(at('samples.jsonl'), `${JSON.stringify(sample)}\n${JSON.stringify({ ...sample, reward: null })}\n`)
  const trajectories = new Trajectories()
  const row = { promptId: 0, group: 0, epoch: 0, turns: 1, stopReason: 'stop', reward: 1, error: null, components: {} }
  const token = { token: [5, 6, 7, 8], lossMask: [0, 0, 1, 1], turn: [0, 0, 0, 0], version: [-1, -1, 0, 0] }
  for (const member of [0, 1]) {
    trajectories.append({ ...row, ...token, member, logprob: [Number.NaN, Number.NaN, -0.5, -1] })
  }
  const names = { environment: 'e', model: 'm', tokenizer: 'bytes', algorithm: 'grpo', seed: 3 }
  await writeTrajectories(at('trajectories.arrow'), trajectories, { ...names, promptOf: () => '"p"' })

  await cp(golden('transformer/qwen3'), at('model'), { recursive: true })
  const { model } = await loadTransformer(at('model'))
  await cp(golden('tokenizers/qwen2'), at('tokenizer'), { recursive: true })
  const adapter = lora(model, { rank: 2, targets: ['q_proj'] })
  await saveLora(at('adapter'), adapter, new Float32Array(adapter.numParameters).fill(0.5))

  const small = { totalSteps: '64', numLanes: '4', 'mlp.hidden': '4', 'ppo.numSteps': '16', 'ppo.numMinibatches': '1' }
  const definition = await configureRun('CartPole-v1', { ...small, threads: '1', kernels: 'plain' })
  await (await startRun(definition, at('run'))).train()
  const checkpoint = 'run/checkpoints/00000001'
  const messages = [{ role: 'user', content: 'hi' }]

  return [
    { name: 'arrow (ours)', files: ['own-file.arrow', 'own-stream.arrow'], read: arrowOf, isSealed: true, share: 2 },
    {
      name: 'arrow (others)',
      files: ['foreign-file.arrow', 'foreign-stream.arrow', 'conversations.arrow'],
      read: rows,
      share: 2,
    },
    { name: 'parquet', files: parquet.map((name) => `${name}.parquet`), read: rows },
    { name: 'safetensors (ours)', files: ['own.safetensors'], read: tensorsOf, isSealed: true, share: 3 },
    { name: 'safetensors (others)', files: ['foreign.safetensors'], read: tensorsOf, share: 3 },
    { name: 'json lines', files: ['prompts.jsonl'], read: rows, share: 3 },
    { name: 'json', files: ['prompts.json'], read: rows, share: 3 },
    {
      name: 'samples',
      files: ['samples.jsonl'],
      read: async (path) => JSON.stringify(await loadSamplesFromJsonl(path)),
      share: 3,
    },
    {
      name: 'trajectories',
      files: ['trajectories.arrow'],
      read: async (path) => {
        const { trajectories: found } = await readTrajectories(path)
        return JSON.stringify(Array.from({ length: found.count }, (_, i) => found.row(i)))
      },
      isSealed: true,
    },
    {
      name: 'model config.json',
      files: ['model/config.json', 'model/model.safetensors.index.json'],
      read: async () => JSON.stringify((await loadTransformer(at('model'))).model.numParameters),
      share: 3,
    },
    {
      name: 'tokenizer',
      files: ['tokenizer/tokenizer.json', 'tokenizer/tokenizer_config.json'],
      read: async () => {
        const { encode, chatTemplate } = await loadTokenizer(at('tokenizer'))
        return JSON.stringify([encode?.('hi'), chatTemplate?.render(messages)])
      },
      share: 3,
    },
    {
      name: 'run config.json',
      files: ['run/config.json'],
      read: async () => JSON.stringify((await openRun(at('run'))).settings),
      share: 3,
    },
    {
      name: 'checkpoint',
      files: [`${checkpoint}/manifest.json`, `${checkpoint}/columns.safetensors`],
      read: async () => {
        const { manifest, tensors } = await readCheckpoint(at('run'), 1)
        return JSON.stringify([manifest, [...tensors.values()].map(({ bytes }) => [...bytes])])
      },
      isSealed: true,
      share: 3,
    },
    {
      name: 'adapter',
      files: ['adapter/adapter_config.json', 'adapter/adapter_model.safetensors'],
      read: async () => JSON.stringify([...(await loadLora(at('adapter'), model)).weights]),
      share: 3,
    },
    {
      name: 'metrics.jsonl',
      files: ['run/metrics.jsonl'],
      read: async () => JSON.stringify((await (await resumeRun(at('run'))).train()).updates),
    },
  ]
}

/** The worker's life: says `start N` before each case, and a line of JSON after it. */
async function work() {
  const folder = await mkdtemp(join(tmpdir(), 'colonnade-fuzz-'))
  const list = (await readers(folder)).filter(({ name }) => name.includes(options.reader))
  const turns = list.flatMap((reader) => Array.from({ length: reader.share ?? 1 }, () => reader))
  const { InputError } = await import(built('index.js'))
  const say = (line) => new Promise((resolve) => process.stdout.write(`${line}\n`, resolve))
  let dangling
  process.on('unhandledRejection', (error) => {
    dangling = error
  })
  for (let number = options.first; number < options.cases; number++) {
    const random = drawer(createHash('sha256').update(`${options.seed} ${number}`).digest().readUInt32LE())
    const { name, files, read, isSealed = false } = turns[number % turns.length]
    await say(`start ${number} ${name}`)
    const file = join(folder, files[random(files.length)])
    const whole = new Uint8Array(await readFile(file))
    reference[file] ??= await read(file)
    await writeFile(file, damage(whole, random))
    let outcome
    let why = ''
    try {
      const told = await read(file)
      outcome = told === reference[file] ? 'same' : isSealed ? 'FALSE' : 'other'
    } catch (error) {
      outcome = error instanceof InputError ? 'refused' : 'THREW'
      why =
        error instanceof InputError
          ? /no end of its reading/.test(error.message)
            ? 'limit'
            : ''
          : String(error?.stack ?? error)
    }
    if (dangling !== undefined)
      [outcome, why, dangling] = ['THREW', `unhandled: ${dangling.stack ?? dangling}`, undefined]
    await mkdir(join(file, '..'), { recursive: true })
    await writeFile(file, whole)
    await say(JSON.stringify({ number, name, outcome, why }))
  }
  await rm(folder, { recursive: true, force: true })
  process.exit(0)
}
const reference = {}

/** Runs cases from `first` on in a process, until it is done, hangs or dies; the number of the next case. */
function runFrom(first, note) {
  return new Promise((resolve) => {
    const words = Object.entries({ ...options, first, isWorker: 'yes' }).filter(([, value]) => value !== '')
    const program = [fileURLToPath(import.meta.url), ...words.map(([name, value]) => `${name}=${value}`)]
    const child = spawn(process.execPath, program, { stdio: ['ignore', 'pipe', 'pipe'] })
    let errors = ''
    let current = null
    let isHung = false
    let timer
    const wait = () => {
      clearTimeout(timer)
      timer = setTimeout(() => {
        isHung = true
        child.kill('SIGKILL')
      }, options.timeoutMs + GRACE_MS)
    }
    wait()
    child.stderr.on('data', (text) => {
      errors = `${errors}${text}`.slice(-2000)
    })
    createInterface({ input: child.stdout }).on('line', (line) => {
      wait()
      const start = /^start (\d+) (.*)$/.exec(line)
      if (start) current = { number: Number(start[1]), name: start[2] }
      else if (line.startsWith('{')) {
        note(JSON.parse(line))
        current = null
      }
    })
    child.on('close', (code) => {
      clearTimeout(timer)
      if (current === null && code === 0) return resolve(options.cases)
      if (current === null) throw new Error(`the readers could not be made (${code}): ${errors}`)
      note({ ...current, outcome: isHung ? 'HUNG' : 'DIED', why: errors })
      resolve(current.number + 1)
    })
  })
}

if (options.isWorker) await work()
else {
  const begun = performance.now()
  const counts = new Map()
  const faults = []
  const note = ({ number, name, outcome, why }) => {
    const row = counts.get(name) ?? { cases: 0, refused: 0, limit: 0, same: 0, other: 0, faults: 0 }
    counts.set(name, row)
    row.cases++
    if (why === 'limit') row.limit++
    if (outcome in row) row[outcome]++
    else {
      row.faults++
      faults.push({ number, name, outcome, why: why.slice(0, 400) })
    }
  }
  for (let next = options.first; next < options.cases; ) next = await runFrom(next, note)
  const titles = ['cases', 'refused', 'limit', 'same', 'other', 'faults']
  console.log(`| reader | ${titles.join(' | ')} |`)
  for (const [name, row] of counts) console.log(`| ${name} | ${titles.map((title) => row[title]).join(' | ')} |`)
  for (const { number, name, outcome, why } of faults.slice(0, 20))
    console.log(`\n${outcome}: case ${number}, ${name}\n${why}`)
  const total = Object.fromEntries(
    titles.map((title) => [title, [...counts.values()].reduce((sum, row) => sum + row[title], 0)]),
  )
  const seconds = Math.round((performance.now() - begun) / 1000)
  console.log(JSON.stringify({ seed: options.seed, ...total, seconds, faultList: faults }))
  process.exitCode = faults.length > 0 ? 1 : 0
}
