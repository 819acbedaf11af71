import { cp, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { runKeys, runMetrics } from '../src/entries/settings.ts'
import { environments, loadPolicy, loadWeights, readArrow, VERSION } from '../src/index.ts'
import { describeNative } from '../src/kernels/bind.ts'
import type { KernelBuild } from '../src/kernels/kernels.ts'
import { listCheckpoints, readCheckpoint } from '../src/training/folder/checkpoint.ts'
import { colonnade, inProcess, MAIN, SMALL, type Started, skipLoudly, start } from './support/command.ts'
import { inOwnMounts, whyNoMounts } from './support/mounts.ts'
import { editManifest, fingerprint, untimedMetrics } from './support/small-training.ts'
import { parseSvg } from './support/svg.ts'
import { contents, temporaryFolder } from './support/temporary.ts'
import { rowsOf, seeded, thorough } from './support/tiers.ts'

const ESCAPE = '\u001b'

/** A folder of this test's own, in which its commands run. */
let here: string
beforeEach(async () => {
  here = await temporaryFolder()
})

/** A complete run that tests copy or read, and do not change. */
let finished: string
let finishing: Awaited<ReturnType<typeof colonnade>>
beforeAll(async () => {
  const folder = await temporaryFolder()
  finished = join(folder, 'run')
  finishing = await colonnade(['train', 'CartPole-v1', 'out=run', 'rollouts=all', 'seed=4', ...SMALL], folder)
})

async function readJson(...path: string[]) {
  return JSON.parse(await readFile(join(...path), 'utf8'))
}

describe('train', () => {
  test('ends well, and names on standard output the picture, the checkpoints, the rollouts and what to do next', async () => {
    expect(finishing.code).toBe(0)
    for (const name of ['learning-curve.svg', 'checkpoints', 'rollouts']) {
      expect(finishing.stdout).toContain(join('run', name))
    }
    expect(finishing.stdout).toContain('complete: 2,048 steps')
    expect(finishing.stdout).toContain('npx colonnade evaluate run')
    expect((await readdir(finished)).sort()).toEqual([
      'checkpoints',
      'config.json',
      'learning-curve.svg',
      'metrics.jsonl',
      'rollouts',
      'run.log',
      'summary.json',
    ])
  })

  test('writes every setting, resolved, to config.json', async () => {
    const { colonnade: version, environment, policy, algorithm, settings } = await readJson(finished, 'config.json')
    expect(version).toBe(VERSION)
    const given = { seed: 4, rollouts: 'all', totalSteps: 2048, numLanes: 8 }
    const run = [...(await runKeys('CartPole-v1'))].filter(
      ([key]) => !key.includes('.') && !['policy', 'algorithm', 'systems', 'wrappers'].includes(key),
    )
    expect(settings).toEqual({ ...Object.fromEntries(run.map(([key, setting]) => [key, setting.default])), ...given })
    expect(environment).toEqual({ id: 'CartPole-v1', parameters: { maxEpisodeSteps: 500 } })
    expect(policy).toMatchObject({ id: 'mlp', parameters: { hidden: [8], activation: 'tanh' } })
    expect(algorithm).toMatchObject({ id: 'ppo', parameters: { numSteps: 32, updateEpochs: 1, gamma: 0.95 } })
  })

  test('writes one JSON object a line to metrics.jsonl, an update each, rising', async () => {
    const text = await readFile(join(finished, 'metrics.jsonl'), 'utf8')
    expect(text.endsWith('\n')).toBe(true)
    const lines = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines.map(({ update }) => update)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
    expect(lines.map(({ steps }) => steps)).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map((update) => 256 * update))
    const figures =
      `update steps seconds stepsPerSecond episodes episodeReturn episodeLength policyLoss valueLoss entropy
      approxKl clipFraction explainedVariance gradNorm learningRate rolloutSeconds updateSeconds phaseSeconds`.split(
        /\s+/,
      )
    expect(Object.keys(await runMetrics('CartPole-v1'))).toEqual(figures)
    for (const line of lines) {
      expect(Object.keys(line)).toEqual(figures)
      for (const figure of figures)
        expect(line[figure], figure).toBeTypeOf(figure === 'phaseSeconds' ? 'object' : 'number')
    }
    // The time between two updates counts too.
    for (const [i, { seconds, stepsPerSecond, rolloutSeconds, updateSeconds }] of lines.entries()) {
      const took = seconds - (lines[i - 1]?.seconds ?? 0)
      expect((stepsPerSecond * took) / 256).toBeCloseTo(1, 6)
      expect(rolloutSeconds + updateSeconds).toBeLessThanOrEqual(took + 1e-9)
    }
    for (const [i, { seconds }] of lines.slice(1).entries()) expect(seconds).toBeGreaterThan(lines[i].seconds)
  })

  test('writes what the run came to, to summary.json', async () => {
    const summary = await readJson(finished, 'summary.json')
    const last = (await readFile(join(finished, 'metrics.jsonl'), 'utf8')).trimEnd().split('\n').at(-1)!
    const { seconds, episodes, episodeReturn } = JSON.parse(last)
    const { kernels } = (await readCheckpoint(finished)).manifest
    expect(summary).toEqual({
      status: 'complete',
      folder: 'run',
      environment: 'CartPole-v1',
      algorithm: 'ppo',
      from: null,
      seed: 4,
      numLanes: 8,
      totalSteps: 2048,
      updates: 8,
      episodes,
      seconds,
      stepsPerSecond: 2048 / seconds,
      solvedAtStep: null,
      solvedAtSeconds: null,
      episodeReturnLast100: { mean: episodeReturn, std: expect.any(Number) },
      presetReached: null,
      evaluation: null,
      node: process.version,
      threads: 1,
      kernels,
      native: describeNative(kernels as KernelBuild),
      files: {
        config: 'run/config.json',
        metrics: 'run/metrics.jsonl',
        summary: 'run/summary.json',
        learningCurve: 'run/learning-curve.svg',
        checkpoints: 'run/checkpoints',
        rollouts: 'run/rollouts',
      },
    })
  })

  test('draws the returns of metrics.jsonl as learning-curve.svg', async () => {
    const svg = parseSvg(await readFile(join(finished, 'learning-curve.svg'), 'utf8'))
    const path = svg.querySelector('[aria-label=line] path')!.getAttribute('d')!
    const heights = [...path.matchAll(/,(-?[\d.]+)/g)].map(([, y]) => -y!)
    const returns = (await untimedMetrics(finished)).map(({ episodeReturn }) => episodeReturn)
    expect(heights).toHaveLength(8)
    const order = (values: number[]) => values.map((_, i) => i).sort((a, b) => values[a]! - values[b]!)
    expect(order(heights)).toEqual(order(returns))
  })

  test('keeps checkpoints by number, each of them whole', async () => {
    expect(await listCheckpoints(finished)).toEqual([8])
    const { manifest } = await readCheckpoint(finished)
    expect(manifest).toMatchObject({ update: 8, steps: 2048, seed: 4, node: process.version })
    expect(['plain', 'simd', 'relaxed', 'native']).toContain(manifest.kernels)
  })

  test.each([
    ['all', [1, 2, 3, 4, 5, 6, 7, 8]],
    ['last', [8]],
    ['none', []],
  ])('keeps rollouts=%s', async (rollouts, updates) => {
    const { code, stdout } = await inProcess(
      ['train', 'CartPole-v1', 'out=run', `rollouts=${rollouts}`, ...SMALL],
      here,
    )
    expect(code).toBe(0)
    const names = await readdir(join(here, 'run/rollouts')).catch(() => [])
    expect(names.sort()).toEqual(updates.map((update) => `0000000${update}.arrow`))
    expect(stdout.includes('run/rollouts')).toBe(updates.length > 0)
    for (const name of names) expect((await readArrow(join(here, 'run/rollouts', name))).numRows).toBe(256)
  })

  test('prints with --json one JSON document, which is summary.json, and nothing else on standard output', async () => {
    const { code, stdout } = await inProcess(['train', 'CartPole-v1', 'out=run', '--json', ...SMALL], here)
    expect(code).toBe(0)
    expect(stdout.trimEnd()).not.toContain('\n')
    expect(JSON.parse(stdout)).toEqual(await readJson(here, 'run/summary.json'))
  })

  test('prints with --quiet nothing on standard error', async () => {
    const { code, stdout, stderr } = await inProcess(['train', 'CartPole-v1', 'out=run', '--quiet', ...SMALL], here)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toContain('complete: 2,048 steps')
  })

  test('prints progress as plain lines when piped, of which the last is the end', () => {
    expect(finishing.stderr).not.toContain('\r')
    expect(finishing.stderr).not.toContain(ESCAPE)
    const lines = finishing.stderr.trimEnd().split('\n')
    expect(lines.slice(0, 6)).toEqual([
      '  learns     CartPole-v1',
      '  policy     mlp 8, 107 parameters', // 4·8 + 8 + 8·2 + 2 of the actor, 4·8 + 8 + 8 + 1 of the critic.
      '  algorithm  ppo, learning rate 0.002',
      '  budget     2,048 steps, 8 lanes, 1 thread, seed 4',
      '  solved     at a mean return of 475 over the last 100 episodes',
      '  folder     run',
    ])
    expect(lines.length).toBeGreaterThan(6)
    for (const line of lines.slice(6))
      expect(line).toMatch(/^\d+ % {2}[\d,]+\/2,048 steps {2}return [\d.]+ {2}[\d,]+ steps\/s/)
    expect(lines.at(-1)).toMatch(/^100 % {2}2,048\/2,048 steps/)
  })

  test('ends with how good it is, where its picture is, and what to type next', () => {
    const lines = finishing.stdout.trimEnd().split('\n')
    expect(lines[0]).toMatch(/^complete: 2,048 steps and \d+ episodes in [\d.]+ s \([\d,]+ steps\/s\)$/)
    expect(lines[1]).toMatch(/^return of the last 100 episodes: [\d.]+ ± [\d.]+$/)
    expect(lines[2]).toBe('not solved yet (mean ≥ 475)')
    expect(lines[3]).toMatch(/^ {2}picture +run\/learning-curve\.svg$/)
    expect(lines.slice(lines.indexOf('next:') + 1)).toEqual([
      expect.stringMatching(/^ {2}npx colonnade evaluate run +# /),
      expect.stringMatching(/^ {2}npx colonnade replay run +# /),
      expect.stringMatching(/^ {2}npx colonnade dashboard \. +# /),
    ])
  })

  test('counts up the folders under runs/ when none is named', async () => {
    for (const number of [1, 2, 3]) {
      const { code, stdout } = await inProcess(['train', 'CartPole-v1', '--json', ...SMALL], here)
      expect(code).toBe(0)
      expect(JSON.parse(stdout).folder).toBe(`runs/CartPole-v1-${number}`)
    }
    expect((await readdir(join(here, 'runs'))).sort()).toEqual([1, 2, 3].map((number) => `CartPole-v1-${number}`))
  })

  test('gives each of several trainings that begin at once a folder of its own', async () => {
    const seeds = rowsOf([1, 2, 3, 4], 2)
    const runs = await Promise.all(
      seeds.map((seed) => colonnade(['train', 'CartPole-v1', '--json', `seed=${seed}`, ...SMALL], here)),
    )
    expect(runs.map(({ code, stderr }) => (code === 0 ? 0 : stderr))).toEqual(seeds.map(() => 0))
    const folders = runs.map(({ stdout }) => JSON.parse(stdout).folder)
    expect(new Set(folders).size).toBe(seeds.length)
    for (const [i, folder] of folders.entries()) {
      expect((await readJson(here, folder, 'summary.json')).seed).toBe(seeds[i])
      expect(await untimedMetrics(join(here, folder))).toHaveLength(8)
    }
  })

  test('trains Pendulum-v1, which has no threshold', async () => {
    const small = SMALL.filter((word) => !word.startsWith('totalSteps'))
    const words = ['train', 'Pendulum-v1', 'out=run', 'totalSteps=1024', ...small]
    const { code, stdout } = await inProcess([...words, 'environment.maxEpisodeSteps=20'], here)
    expect(code).toBe(0)
    expect(stdout).not.toContain('solved')
    expect(await readJson(here, 'run/summary.json')).toMatchObject({ environment: 'Pendulum-v1', totalSteps: 1024 })
  })

  test('trains the environment that a module exports, and resumes and evaluates it', async () => {
    const module = fileURLToPath(new URL('./support/line-world.mjs', import.meta.url))
    const words = [
      module,
      'out=run',
      'environment.goal=4',
      'totalSteps=256',
      'numLanes=8',
      'mlp.hidden=8',
      'ppo.numSteps=16',
    ]
    expect((await colonnade(['train', ...words, 'ppo.numMinibatches=1'], here)).code).toBe(0)
    const refused = await inProcess(['resume', 'run'], here)
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining(`trust=${module}`)])
    expect((await inProcess(['resume', 'run', `trust=${module}`], here)).code).toBe(0)
    const { stdout } = await inProcess(['evaluate', 'run', 'episodes=3', `trust=${module}`, '--json'], here)
    expect(JSON.parse(stdout)).toMatchObject({ environment: 'LineWorld-v0', episodes: 3 })
  })

  test('trains by the algorithm that a module exports, in threads, and resumes and evaluates it', async () => {
    // As a user has it: in a file outside of the package, which stands in node_modules.
    await cp(
      fileURLToPath(new URL('../dist/examples/custom-algorithm.js', import.meta.url)),
      join(here, 'my-algorithm.mjs'),
    )
    await mkdir(join(here, 'node_modules'))
    await symlink(fileURLToPath(new URL('..', import.meta.url)), join(here, 'node_modules/colonnade'))
    const sizes = ['numLanes=64', 'mlp.hidden=8', 'penalty-ppo.numSteps=8', 'penalty-ppo.numMinibatches=1']
    const words = ['train', 'CartPole-v1', 'algorithm=./my-algorithm.mjs', 'penalty-ppo.beta=0.5', ...sizes]
    words.push('penalty-ppo.learningRateSchedule=constant')
    expect((await colonnade([...words, 'totalSteps=2048', 'threads=1', 'out=run'], here)).code).toBe(0)
    expect((await inProcess([...words, 'totalSteps=1024', 'threads=2', 'out=shared'], here)).code).toBe(0)
    const config = await readJson(here, 'run/config.json')
    expect(config.algorithm).toMatchObject({ id: 'penalty-ppo', parameters: { beta: 0.5, numSteps: 8 } })
    expect(await readJson(here, 'run/summary.json')).toMatchObject({ algorithm: 'penalty-ppo', updates: 4 })
    const [line] = (await readFile(join(here, 'run/metrics.jsonl'), 'utf8')).split('\n')
    const told = Object.keys(JSON.parse(line!))
    expect(told).toEqual(expect.arrayContaining(['episodeReturn', 'policyLoss', 'approxKl', 'gradNorm']))
    expect(told).not.toContain('clipFraction')
    expect((await inProcess(['resume', 'shared', 'totalSteps=2048'], here)).code).toBe(0)
    const columnsOf = (run: string) => readFile(join(here, run, 'checkpoints/00000004/columns.safetensors'))
    expect(await columnsOf('shared')).toEqual(await columnsOf('run'))
    const { stdout } = await inProcess(['evaluate', 'run', 'episodes=3', '--json'], here)
    expect(JSON.parse(stdout)).toMatchObject({ environment: 'CartPole-v1', episodes: 3 })
    const help = await inProcess([...words, '--help'], here)
    expect(help.stdout).toContain('  penalty-ppo.beta=1 ')
    expect(help.stdout).toMatch(/\n {2}approxKl +KL\(old ‖ new\), as r − 1 − log r; nats\n/)
  })
})

describe('on a terminal', () => {
  /** Runs a shell command under a pseudo terminal, and gives what it showed. */
  async function shown(context: { skip(note?: string): never }, command: string): Promise<string> {
    const env = { ...process.env, TERM: 'xterm-256color' }
    const terminal = start('script', ['-qfec', command, '/dev/null'], { cwd: here, env })
    const { code, stdout } = await terminal.ended.catch((cause) => skipLoudly(context, `no script (${cause.message})`))
    if (code !== 0 && !stdout.includes('steps')) skipLoudly(context, `script makes no terminal here (${stdout})`)
    expect(code, stdout).toBe(0)
    return stdout
  }

  const train = `NO_COLOR=1 '${process.execPath}' '${MAIN}' train CartPole-v1 out=run ${SMALL.join(' ')}`

  test('progress is one live line that ends with the last figures', async (context) => {
    const text = await shown(context, train)
    const live = text.split(`\r${ESCAPE}[J`).slice(1)
    expect(live.length).toBeGreaterThan(0)
    for (const line of live.slice(0, -1)) expect(line).not.toContain('\n')
    expect(live.at(-1)).toMatch(/^100 % █+ {2}ETA 0 s +return [\d.]+ +[\d,]+ steps\/s.*\r\n/)
  })

  test('the live line does not run over the edge of a narrow one', async (context) => {
    const text = await shown(context, `stty cols 30; ${train}`)
    const live = text.split(`\r${ESCAPE}[J`).slice(1)
    expect(live.length).toBeGreaterThan(0)
    for (const line of live) expect(line.split('\r\n')[0]!.length).toBeLessThan(30)
  })

  test('--quiet shows no progress', async (context) => {
    const text = await shown(context, `${train} --quiet`)
    expect(text).not.toContain(ESCAPE)
    expect(text).toContain('complete: 2,048 steps')
  })

  test('has colors, unless NO_COLOR says otherwise', async (context) => {
    const text = await shown(context, `${train.replace('NO_COLOR=1 ', '')} --quiet`)
    expect(text).toContain(`${ESCAPE}[1mcomplete: 2,048 steps`)
  })
})

test('a module in TypeScript is answered with what to do, where Node runs none', async () => {
  await writeFile(join(here, 'mine.ts'), 'export const nothing: number = 1')
  const { code, stderr } = await colonnade(['train', './mine.ts'], here)
  expect(code).toBe(1)
  const runsTypeScript = Boolean((process.features as { typescript?: unknown }).typescript)
  expect(stderr).toMatch(
    runsTypeScript
      ? /mine\.ts: got exports with these ids: none, expected exactly one/
      : /^colonnade: environment module: got \/.+mine\.ts, expected JavaScript, since this Node .+ or use Node 22\.18/,
  )
})

test('a module in a package of scripts is answered with what to do, where Node takes it for none', async () => {
  const folder = join(here, 'scripts')
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), '{"type": "commonjs"}')
  await writeFile(join(folder, 'mine.js'), 'import "node:fs"')
  const { code, stderr } = await colonnade(['train', './mine.js'], folder)
  expect(code).toBe(1)
  expect(stderr).toMatch(/expected an ES module: set "type": "module" in .+ or give it a name ending in \.mjs/)
  const { stderr: missing } = await inProcess(['check', './mine.mts'], folder)
  expect(missing).toMatch(/environment module: got .+mine\.mts, expected an existing file/)
  const { stderr: unknown } = await inProcess(['train', './mine.jsx'], folder)
  expect(unknown).toMatch(/got "\.\/mine\.jsx", expected one of .+, or the path of a module that exports one/)
})

describe('help', () => {
  test.each(['CartPole-v1', 'Pendulum-v1'])('names every key of a run of %s with its default', async (id) => {
    const { code, stdout } = await inProcess(['train', id, '--help'])
    expect(code).toBe(0)
    const keys = [...(await runKeys(id))]
    const titles = [
      'Run',
      'Environment',
      'Policy',
      'Algorithm',
      'Evaluation',
      'Files and logging',
      'Machine',
      'Keys of train .*',
    ]
    expect(stdout.match(/^\S.+:$/gm)).toHaveLength(titles.length + 1) // The metrics are the last.
    for (const title of titles) expect(stdout).toMatch(new RegExp(`^${title}:$`, 'm'))
    expect(keys.length).toBeGreaterThan(20)
    for (const [key, setting] of keys) {
      const line = stdout.split('\n').find((each) => each.startsWith(`  ${key}=`))
      expect(line, key).toMatch(`  ${key}=${setting.default} `)
      expect(line).toContain(`${setting.description}; ${setting.expected}`)
    }
    const metrics = Object.entries(await runMetrics(id))
    expect(metrics.map(([name]) => name)).toEqual(expect.arrayContaining(['steps', 'episodeReturn', 'approxKl']))
    for (const [name, { unit, description }] of metrics) {
      const line = stdout.split('\n').find((each) => each.startsWith(`  ${name} `))
      expect(line, name).toMatch(unit === null ? /[^;]$/ : new RegExp(`; ${unit}$`))
      expect(line).toContain(description)
    }
  })

  test('is the same for no words, -h and --help, and names every command and option', async () => {
    const [none, short, long] = await Promise.all([inProcess([]), inProcess(['-h']), inProcess(['--help'])])
    expect(none).toEqual(long)
    expect(short).toEqual(long)
    for (const word of ['train', 'resume', 'evaluate', 'export', 'environments', '--json', '--quiet', '--version']) {
      expect(long.stdout).toContain(word)
    }
    const lines = long.stdout.split('\n')
    expect(lines.length).toBeLessThanOrEqual(24) // The last is empty: the prompt.
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(80)
  })

  test.each([
    ['resume', 'RUN', '  from=0 '],
    ['evaluate', 'RUN', '  episodes=100 '],
    ['export', 'nowhere', '  format=file '],
    ['dashboard', '', '  port=6060 '],
    ['environments', '', 'list the environments'],
  ])('of %s is of that command alone', async (command, subject, line) => {
    const { code, stdout, stderr } = await inProcess([command, subject, '--help'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toContain(`  colonnade ${command}`)
    expect(stdout).toContain(line)
    expect(stdout).toContain('--json')
    expect(stdout.match(/^ {2}colonnade /gm)).toHaveLength(1)
    expect((await inProcess(['help', command])).stdout).toBe((await inProcess([command, '--help'])).stdout)
    expect(stdout).not.toContain('Keys of train')
  })

  test('--version prints the version', async () => {
    expect(await inProcess(['--version'])).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: '' })
  })
})

describe('environments', () => {
  test('lists each with its spaces, for people and as JSON', async () => {
    const { code, stdout } = await inProcess(['environments'])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^CartPole-v1 +box\(4\) → discrete\(2\), 500 steps, solved at 475$/m)
    expect(stdout).toMatch(/^Pendulum-v1 +box\(3\) → box\(1\), 200 steps$/m)
    const listed = JSON.parse((await inProcess(['environments', '--json'])).stdout)
    expect(listed.environments.map(({ id }: { id: string }) => id)).toEqual(environments.map(({ id }) => id))
    expect(listed.environments[0]).toEqual({
      id: 'CartPole-v1',
      observation: 'box(4)',
      action: 'discrete(2)',
      maxEpisodeSteps: 500,
      returnThreshold: 475,
    })
  })
})

describe('evaluate', () => {
  test('plays as many episodes as asked, 100 by default, the same each time', async () => {
    const evaluate = async (...words: string[]) =>
      JSON.parse((await inProcess(['evaluate', finished, '--json', ...words])).stdout)
    const [first, again, few] = await Promise.all([
      evaluate(),
      evaluate('episodes=100', 'seed=10000'),
      evaluate('episodes=7'),
    ])
    expect(first).toMatchObject({ run: finished, update: 8, environment: 'CartPole-v1', episodes: 100, explore: false })
    expect(again).toEqual(first)
    expect(few.episodes).toBe(7)
    const sampled = await evaluate('explore=true', 'seed=3')
    expect(sampled).toMatchObject({ explore: true, seed: 3 })
    expect(sampled.episodeReturn).not.toEqual(first.episodeReturn)
  })

  test('says it in words, and changes nothing in the run', async () => {
    const before = await contents(finished)
    const { code, stdout, stderr } = await inProcess(['evaluate', finished, 'episodes=5'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toMatch(
      /^CartPole-v1, weights of update 8, 5 episodes\nreturn [\d.]+ ± [\d.]+, from [\d.]+ to [\d.]+\n/,
    )
    expect(await contents(finished)).toEqual(before)
  })
})

describe('export', () => {
  test('writes the kept rollouts, one after the other, with what they say of themselves', async () => {
    const { code, stdout } = await inProcess(['export', finished, 'out=deep/in/a.arrow'], here)
    expect(code).toBe(0)
    expect(stdout).toBe('2,048 rows → deep/in/a.arrow\n')
    const table = await readArrow(join(here, 'deep/in/a.arrow'))
    expect(table.numRows).toBe(2048)
    const rollouts = (await readdir(join(finished, 'rollouts'))).sort()
    const parts = await Promise.all(rollouts.map((name) => readArrow(join(finished, 'rollouts', name))))
    for (const name of ['observation', 'action', 'reward', 'advantage', 'step', 'version']) {
      const whole = JSON.stringify([...table.getChild(name)!])
      expect(whole, name).toBe(JSON.stringify(parts.flatMap((part) => [...part.getChild(name)!])))
    }
    const { metadata } = table.schema
    expect(Object.fromEntries(metadata)).toMatchObject({
      environment: 'CartPole-v1',
      seed: '4',
      gamma: '0.95',
      numLanes: '8',
      colonnade: VERSION,
    })
    expect(JSON.parse(metadata.get('actionSpace')!)).toMatchObject({ kind: 'discrete', n: 2 })
    expect(JSON.parse(metadata.get('observationSpace')!)).toMatchObject({ kind: 'box', shape: [4] })
  })

  test('writes fresh episodes, whole ones, as many as asked', async () => {
    const { code, stdout } = await inProcess(['export', finished, 'out=a.arrow', 'episodes=9', '--json'], here)
    expect(code).toBe(0)
    const table = await readArrow(join(here, 'a.arrow'))
    expect(JSON.parse(stdout)).toEqual({
      run: finished,
      out: 'a.arrow',
      format: 'file',
      rows: table.numRows,
      episodes: 9,
    })
    const column = (name: string) => [...table.getChild(name)!] as number[]
    const [step, terminated, truncated] = [column('step'), column('terminated'), column('truncated')]
    const ends = step.map((_, row) => row).filter((row) => terminated[row]! + truncated[row]! > 0)
    const lengths = ends.map((row) => step[row]! + 1)
    expect(lengths).toHaveLength(9)
    expect(lengths.reduce((sum, length) => sum + length, 0)).toBe(table.numRows)
    expect(column('version').every((version) => version === 8)).toBe(true)
    const metadata = Object.fromEntries(table.schema.metadata)
    expect(metadata).toMatchObject({ seed: '20000', update: '8', checkpoint: join(finished, 'checkpoints/00000008') })
    expect(JSON.parse(metadata.policy!)).toMatchObject({ id: 'mlp' })
    expect(table.getChild('finalObservation')!.nullCount).toBe(table.numRows - 9)
    expect(table.schema.fields.map(({ name }) => name)).not.toContain('advantage')
  })

  test('writes the stream format, which reads back the same', async () => {
    const words = ['export', finished, 'episodes=3']
    await inProcess([...words, 'out=stream.arrows', 'format=stream'], here)
    await inProcess([...words, 'out=file.arrow'], here)
    const [stream, file] = [join(here, 'stream.arrows'), join(here, 'file.arrow')]
    expect((await readFile(file)).subarray(0, 6).toString()).toBe('ARROW1')
    expect((await readFile(stream)).subarray(0, 6).toString()).not.toBe('ARROW1')
    const [a, b] = [await readArrow(stream), await readArrow(file)]
    expect(JSON.stringify(a.toArray())).toBe(JSON.stringify(b.toArray()))
    expect(a.schema.metadata).toEqual(b.schema.metadata)
  })

  test.each([
    ['onnx', ['a.onnx']],
    ['layers', ['model/weights.bin', 'model/model.json']],
    ['module', ['a.mjs']],
    ['safetensors', ['a.safetensors']],
  ])('writes the policy as %s', async (format, files) => {
    const out = format === 'layers' ? 'model' : files[0]!
    const { code, stdout } = await inProcess(['export', finished, `out=${out}`, `format=${format}`], here)
    expect({ code, stdout }).toEqual({ code: 0, stdout: `policy of update 8 → ${files.join(', ')}\n` })
    for (const file of files) expect((await readFile(join(here, file))).length).toBeGreaterThan(100)
    const json = await inProcess(['export', finished, `out=${out}`, `format=${format}`, '--json'], here)
    expect(JSON.parse(json.stdout)).toEqual({ run: finished, out, format, update: 8, files })
  })

  test('writes a policy that acts, and weights with which a run can begin', async () => {
    await inProcess(['export', finished, 'out=a.mjs', 'format=module'], here)
    const { act } = await import(pathToFileURL(join(here, 'a.mjs')).href)
    expect([0, 1]).toContain(act([0, 0, 0.1, 0]))
    await inProcess(['export', finished, 'out=a.safetensors', 'format=safetensors'], here)
    const { policy, environment, weights } = await loadPolicy(finished)
    const model = policy.build(environment.observationSpace, environment.actionSpace)
    expect(await loadWeights(join(here, 'a.safetensors'), model)).toEqual(weights)
    const { code } = await inProcess(['train', 'CartPole-v1', 'out=next', 'weights=a.safetensors', ...SMALL], here)
    expect(code).toBe(0)
    expect((await readJson(here, 'next/config.json')).settings.weights).toBe('a.safetensors')
  })

  test('says what a run without rollouts can do instead', async () => {
    await cp(finished, join(here, 'run'), { recursive: true })
    await rm(join(here, 'run/rollouts'), { recursive: true })
    const { code, stderr } = await inProcess(['export', 'run', 'out=a.arrow'], here)
    expect(code).toBe(1)
    expect(stderr).toBe(
      'colonnade: rollouts of run: got none, expected a run that kept some (rollouts=last or all), or episodes=N for fresh ones\n',
    )
    expect(await readdir(here)).toEqual(['run'])
  })
})

describe('bad input ends with exit code 1, says what came and what was expected, and writes nothing:', () => {
  const train = ['train', 'CartPole-v1', ...SMALL.filter((word) => !word.startsWith('numLanes'))]
  test.each<[string, string[], RegExp]>([
    ['numLanes=0', [...train, 'numLanes=0'], /numLanes: got "0", expected a whole number ≥ 1/],
    ['numLanes=-1', [...train, 'numLanes=-1'], /numLanes: got "-1", expected a whole number ≥ 1/],
    ['numLanes=1.5', [...train, 'numLanes=1.5'], /numLanes: got "1\.5", expected a whole number ≥ 1/],
    ['numLanes=NaN', [...train, 'numLanes=NaN'], /numLanes: got "NaN", expected a whole number ≥ 1/],
    [
      'more lanes than memory',
      [...train, 'numLanes=1e9'],
      /memory: got a plan of .+TiB \(.+\), expected at most .+GiB/,
    ],
    ['an unknown command', ['trian', 'CartPole-v1'], /command: got "trian" .+mean "train"\?/],
    ['a command that is a name of JavaScript', ['constructor'], /command: got "constructor".*, expected one of/],
    ['an unknown environment', ['train', 'CartPol-v1'], /environment: got "CartPol-v1" .+mean "CartPole-v1"\?/],
    ['an unknown key', [...train, 'numLane=4'], /key: got "numLane" .+mean "numLanes"\?/],
    ['an unknown algorithm', [...train, 'algorithm=ppp'], /algorithm: got "ppp" .+mean "ppo"\?/],
    ['an unknown key of the algorithm', [...train, 'ppo.gama=1'], /key: got "ppo\.gama" .+mean "ppo\.gamma"\?/],
    ['a key that is a name of JavaScript', [...train, 'constructor=1'], /key: got "constructor", expected one of/],
    ['an unknown key of evaluate', ['evaluate', 'RUN', 'episode=3'], /key: got "episode" .+mean "episodes"\?/],
    ['an unknown key of export', ['export', 'RUN', 'out=a', 'fromat=file'], /key: got "fromat" .+mean "format"\?/],
    ['a key of resume', ['resume', 'RUN', 'seed=3'], /key: got "seed", expected/],
    ['a word after environments', ['environments', 'seed=3'], /got "seed(=3)?", expected/],
    ['a word for a number', [...train, 'seed=first'], /seed: got "first", expected a whole number ≥ 0/],
    ['a number for a switch', [...train, 'stopWhenSolved=1'], /stopWhenSolved: got "1", expected true or false/],
    [
      'a word that is not of the list',
      [...train, 'rollouts=some'],
      /rollouts: got "some", expected one of last, all, n/,
    ],
    [
      'a list with a word',
      ['train', 'CartPole-v1', 'mlp.hidden=8,x'],
      /mlp\.hidden: got "8,x", expected a list of whole numbers/,
    ],
    ['a number out of range', ['train', 'CartPole-v1', 'ppo.gamma=2'], /ppo\.gamma: got "2", expected a number/],
    ['an empty value', [...train, 'seed='], /seed: got "", expected a whole number ≥ 0/],
    ['an empty folder name', [...train, 'out='], /out: got .+, expected .+folder/],
    ['a bad value behind an option', [...train, '--numLanes', '-3'], /numLanes: got "-3", expected a whole number ≥ 1/],
    ['a key where an option lacks its value', [...train, '--seed', 'numLanes=3'], /seed: got "numLanes=3", expected/],
    ['an unknown key as an option', [...train, '--numLane', '4'], /key: got "numLane" .+mean "numLanes"\?/],
    ['the same key as an option and a word', [...train, '--seed=1', 'seed=2'], /seed: got a value twice/],
    ['an option of one letter', [...train, '-s', '3'], /option: got -s, expected .+like --seed 3/],
    ['initials of a key', [...train, 'lr=1'], /key: got "lr" .+mean "ppo\.learningRate"\?/],
    [
      'a key of a part, spelled otherwise',
      [...train, 'learning_rate=1'],
      /got "learning_rate" .+mean "ppo\.learningRate"\?/,
    ],
    ['a key without a value', [...train, 'seed'], /argument: got "seed", expected key=value/],
    ['a value without a key', [...train, '=3'], /argument: got "=3", expected key=value/],
    ['a key that is given twice', [...train, 'seed=1', 'seed=2'], /seed: got a value twice, expected one value/],
    ['an unknown option', [...train, '--jsn'], /option: got --jsn, expected --json/],
    ['an option with a value', [...train, '--json=yes'], /--json/],
    ['no environment', ['train'], /first word: got nothing, expected an environment, like CartPole-v1/],
    ['a key for the environment', ['train', 'seed=1'], /first word: got seed=1, expected an environment/],
    ['no run folder', ['resume'], /first word: got nothing, expected a run folder/],
    [
      'a run folder that is not there',
      ['resume', 'nowhere'],
      /^colonnade: nowhere: got no such folder, expected a run folder/,
    ],
    ['a folder that holds no run', ['evaluate', '.'], /\.: got a folder without a config\.json, expected a run folder/],
    ['a file where a run is expected', ['evaluate', 'present'], /present: got a file, expected a run folder/],
    [
      'a module that is not there',
      ['train', './nowhere.mjs'],
      /environment module: got \/.+nowhere\.mjs, expected an existing file$/m,
    ],
    [
      'minibatches that do not fit',
      ['train', 'CartPole-v1', 'ppo.numMinibatches=9999'],
      /numMinibatches: got 9999, expected/,
    ],
    ['no episodes', ['evaluate', 'RUN', 'episodes=0'], /episodes: got "0", expected a whole number ≥ 1/],
    ['no file to export to', ['export', 'RUN'], /out: got nothing, expected the file to write, like out=/],
    ['an empty name of the file to export to', ['export', 'RUN', 'out='], /out: got .+, expected the file to write/],
    ['an unknown format', ['export', 'RUN', 'out=a', 'format=csv'], /format: got "csv", expected one of file, stream/],
    [
      'a file of another format than it says',
      ['export', 'RUN', 'out=a.csv', 'format=parquet'],
      /out: got a\.csv with format=parquet, expected a name that ends in \.parquet$/m,
    ],
    [
      'a file of a format that is not named',
      ['export', 'RUN', 'out=a.onnx', 'format=file'],
      /out: got a\.onnx with format=file, expected a name that ends in .+, or format=onnx/,
    ],
    [
      'an ending that no format has',
      ['export', 'RUN', 'out=a.csv'],
      /out: got a\.csv, expected a name that ends in \.arrow, .+, \.parquet, .+, or format=…$/m,
    ],
    [
      'a name that says no format',
      ['export', 'RUN', 'out=a'],
      /out: got a, expected a name whose extension sets the format/,
    ],
    [
      'episodes of a policy',
      ['export', 'RUN', 'out=a', 'format=onnx', 'episodes=3'],
      /episodes: got "3", expected no such key with format=onnx/,
    ],
    [
      'a seed of episodes that are not played',
      ['export', 'RUN', 'out=a.arrow', 'seed=3'],
      /seed: got "3", expected episodes=N/,
    ],
    ['weights that are not there', [...train, 'weights=a.safetensors'], /a\.safetensors: got ENOENT/],
    [
      'a file that cannot be written',
      ['export', 'RUN', 'out=present/a.arrow'],
      /present\/a\.arrow: got a path.+, expected a writable path/,
    ],
    ['a folder through a file', [...train, 'out=present/run'], /present\/run: got a path through something/],
    [
      'a folder that is a file',
      [...train, 'out=present'],
      /present: got a path through something that is not a folder/,
    ],
    [
      'a folder that is not empty',
      [...train, 'out=.'],
      /out: got \., which is not empty, expected a new or empty folder/,
    ],
    [
      'a folder that holds a run',
      [...train, 'out=RUN', 'ifExists=refuse'],
      /out: got .+, which holds a run, .+colonnade resume/,
    ],
  ])('%s', async (_, words, message) => {
    await writeFile(join(here, 'present'), 'kept')
    const before = await contents(finished)
    const { code, stdout, stderr } = await inProcess(
      words.map((word) => word.replace('RUN', finished)),
      here,
    )
    expect(stderr).toMatch(message)
    expect(stderr).toMatch(/^colonnade: [^\n]+\n$/)
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(await contents(here)).toEqual({ present: Buffer.from('kept').toString('base64') })
    expect(await contents(finished)).toEqual(before)
  })

  test('runs that is a file, where the folder without a name would go', async () => {
    await writeFile(join(here, 'runs'), 'kept')
    const { code, stderr } = await colonnade(['train', 'CartPole-v1', ...SMALL], here)
    expect(code).toBe(1)
    expect(stderr).toMatch(/runs.+: got .+, expected/)
  })

  test.runIf(process.platform === 'linux')('a folder that the system will not make', async () => {
    const { code, stdout, stderr } = await inProcess([...train, 'out=/proc/colonnade/run'])
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toMatch(
      /\/proc\/colonnade\/run\S*: got a folder that cannot be made \(ENOENT.+, expected a writable path/,
    )
  })
})

describe('a disk', () => {
  const node = `'${process.execPath}' '${MAIN}'`
  let why: string | null
  beforeAll(async () => {
    why = await whyNoMounts()
  })

  // In the fast tier the disk that fills up shows that such an error is named.
  thorough('that is read-only is named, and neither a run nor an export begins on it', async (context) => {
    if (why) skipLoudly(context, why)
    await mkdir(join(here, 'disk'))
    const words = `CartPole-v1 out=disk/run ${SMALL.join(' ')}`
    const { stdout, stderr } = await inOwnMounts(
      `mount -t tmpfs tmpfs disk; mkdir disk/empty; mount -o remount,ro disk
       ${node} train ${words}; echo $?; ${node} train ${words.replace('run', 'empty')}; echo $?
       ${node} export "$1" out=disk/a.arrow; echo $?; find disk -type f`,
      [finished],
      here,
    )
    expect(stdout).toBe('1\n1\n1\n')
    expect(
      stderr.match(/^colonnade: disk\S+: got a file system that is read-only \(EROFS.+, expected .+$/gm),
    ).toHaveLength(3)
  })

  /** Trains on a disk of 256 KiB until it is full, and copies what is then there to `after`. */
  async function fill(words: string): Promise<{ code: string; stderr: string; run: string }> {
    await mkdir(join(here, 'disk'))
    const { stdout, stderr } = await inOwnMounts(
      `mount -t tmpfs -o size=256k tmpfs disk
       ${node} train CartPole-v1 out=disk/run ${words} --json; echo $?; cp -a disk/run after`,
      [],
      here,
    )
    return { code: stdout.trim(), stderr, run: join(here, 'after') }
  }

  thorough(
    'that fills up with checkpoints keeps those that were saved, and the run goes on from them elsewhere',
    async (context) => {
      if (why) skipLoudly(context, why)
      const words = `${SMALL.join(' ').replace('hidden=8', 'hidden=48,48')} checkpointEvery=1 checkpointsKept=99`
      const { code, stderr, run } = await fill(words)
      expect(code).toBe('1')
      expect(stderr).toMatch(
        /^colonnade: disk\/run\S+: got a disk that is full \(ENOSPC.+\), expected a writable path.*$/m,
      )
      const saved = await listCheckpoints(run)
      expect(saved.length).toBeGreaterThan(1)
      for (const update of saved) expect((await readCheckpoint(run, update)).manifest.update).toBe(update)
      expect((await readdir(join(run, 'checkpoints'))).filter((name) => name.endsWith('.tmp'))).toEqual([])
      expect((await inProcess(['resume', 'after'], here)).code).toBe(0)
      expect((await inProcess(['train', 'CartPole-v1', 'out=whole', ...words.split(' ')], here)).code).toBe(0)
      expect(await fingerprint(run)).toEqual(await fingerprint(join(here, 'whole')))
    },
  )

  test('that fills up with rollouts leaves no half of one', async (context) => {
    if (why) skipLoudly(context, why)
    const { code, stderr, run } = await fill(
      `${SMALL.join(' ')} totalSteps=8192 rollouts=all`.replace('totalSteps=2048 ', ''),
    )
    expect(code).toBe('1')
    expect(stderr).toMatch(
      /^colonnade: disk\/run\S+: got a disk that is full \(ENOSPC.+\), expected a writable path.*$/m,
    )
    const names = await readdir(join(run, 'rollouts'))
    expect(names.length).toBeGreaterThan(1)
    for (const name of names) {
      expect(name).toMatch(/^\d{8}\.arrow$/)
      expect((await readArrow(join(run, 'rollouts', name))).numRows).toBe(256)
    }
    expect((await inProcess(['resume', 'after'], here)).code).toBe(0)
    expect(await readdir(join(run, 'rollouts'))).toHaveLength(32)
    expect(await untimedMetrics(run)).toHaveLength(32)
  })

  thorough('that is too small for an export keeps the file that was there', async (context) => {
    if (why) skipLoudly(context, why)
    await mkdir(join(here, 'disk'))
    const { stdout, stderr } = await inOwnMounts(
      `mount -t tmpfs -o size=64k tmpfs disk; echo the old file > disk/a.arrow
       ${node} export "$1" out=disk/a.arrow; echo $?; ls -A disk; cat disk/a.arrow`,
      [finished],
      here,
    )
    expect(stdout).toBe('1\na.arrow\nthe old file\n')
    expect(stderr).toMatch(
      /^colonnade: disk\/a\.arrow: got a disk that is full \(ENOSPC.+\), expected a writable path.*$/m,
    )
  })
})

describe('a training that is stopped', () => {
  /** Long enough to be stopped midway: 256 updates. */
  const LONG =
    `rollouts=last checkpointEvery=10 totalSteps=16384 ppo.numSteps=16 ppo.numMinibatches=1 ppo.updateEpochs=1 numLanes=4 mlp.hidden=8
    environment.maxEpisodeSteps=60`.split(/\s+/)
  let whole: Awaited<ReturnType<typeof fingerprint>>
  beforeAll(async () => {
    const folder = await temporaryFolder()
    expect((await inProcess(['train', 'CartPole-v1', 'out=run', ...LONG], folder)).code).toBe(0)
    whole = await fingerprint(join(folder, 'run'))
    expect(whole.metrics.map(({ update }) => update)).toEqual(Array.from({ length: 256 }, (_, i) => i + 1))
  })

  function begin(...words: string[]): Started {
    return start(process.execPath, [MAIN, ...words], { cwd: here })
  }

  test.each(rowsOf(['SIGINT', 'SIGTERM']))(
    'by %s finishes the update, says how to resume, and resumed equals the uninterrupted one',
    async (signal) => {
      const training = begin('train', 'CartPole-v1', 'out=run', ...LONG)
      await training.printed('/16,384 steps')
      training.process.kill(signal)
      const { code, stdout } = await training.ended
      expect(code).toBe(signal === 'SIGINT' ? 130 : 143)
      expect(stdout).toMatch(/^interrupted: /)
      expect(stdout).toMatch(/^next:\n {2}npx colonnade resume run +# continues/m)
      const summary = await readJson(here, 'run/summary.json')
      expect(summary.status).toBe('interrupted')
      expect(await listCheckpoints(join(here, 'run'))).toContain(summary.updates)
      expect((await untimedMetrics(join(here, 'run'))).length).toBe(summary.updates)
      expect(summary.updates).toBeLessThan(256)

      const resumed = await inProcess(['resume', 'run'], here)
      expect(resumed.code).toBe(0)
      expect(resumed.stderr).toContain(`from step ${summary.totalSteps.toLocaleString('en-US')}`)
      expect(await readJson(here, 'run/summary.json')).toMatchObject({ status: 'complete', totalSteps: 16384 })
      expect(await fingerprint(join(here, 'run'))).toEqual(whole)
    },
  )

  thorough('a convolutional run can be stopped, resumed to the same bits, evaluated and exported', async () => {
    const net = ['policy=convolutional', 'convolutional.filters=4', 'convolutional.hidden=8']
    const sizes = ['numLanes=8', 'totalSteps=16384', 'ppo.numSteps=32', 'ppo.numMinibatches=1', 'ppo.updateEpochs=1']
    const words = ['train', 'Breakout-MinAtar', ...net, ...sizes, 'seed=6']
    const training = begin(...words, 'out=run')
    const uninterrupted = colonnade([...words, 'out=whole'], here)
    await training.printed('/16,384 steps')
    training.process.kill('SIGINT')
    const { code, stdout } = await training.ended
    expect({ code, stdout }).toEqual({ code: 130, stdout: expect.stringMatching(/^interrupted: /) })
    expect((await uninterrupted).code).toBe(0)
    expect((await inProcess(['resume', 'run'], here)).code).toBe(0)
    expect(await fingerprint(join(here, 'run'))).toEqual(await fingerprint(join(here, 'whole')))

    const evaluated = await inProcess(['evaluate', 'run', 'episodes=10', '--json'], here)
    expect(JSON.parse(evaluated.stdout)).toMatchObject({ environment: 'Breakout-MinAtar', update: 64, episodes: 10 })
    const exported = await inProcess(['export', 'run', 'out=episodes.arrow', 'episodes=3'], here)
    expect(exported.code).toBe(0)
    expect((await readArrow(join(here, 'episodes.arrow'))).numRows).toBeGreaterThan(10)
    await inProcess(['export', 'run', 'out=weights.safetensors', 'format=safetensors'], here)
    const begun = await colonnade([...words, 'out=again', 'weights=weights.safetensors'], here)
    expect(begun.code).toBe(0)
    const refused = await inProcess(['export', 'run', 'out=policy.onnx', 'format=onnx'], here)
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('got a network that cannot be exported') })
  })

  test('by a second Ctrl-C ends at once, with the exit code of an interrupted program', async () => {
    const training = begin('train', 'CartPole-v1', 'out=run', ...LONG)
    await training.printed('/16,384 steps')
    training.process.kill('SIGSTOP')
    training.process.kill('SIGINT')
    training.process.kill('SIGTERM')
    training.process.kill('SIGCONT')
    // The exit code is the second signal's. The system decides which of the two it delivers first.
    expect([130, 143]).toContain((await training.ended).code)
    expect((await inProcess(['resume', 'run'], here)).code).toBe(0)
  })

  const KILLS = 8

  // In the fast tier tests/training/run.test.ts takes up runs that crashed at each place.
  thorough('by kill -9 at random moments, again and again, equals the uninterrupted one in the end', async () => {
    const run = join(here, 'run')
    let midway = 0
    let training = begin('train', 'CartPole-v1', 'out=run', ...LONG)
    const random = seeded(1)
    for (let kill = 0; kill < KILLS; kill++) {
      // Every other time already while it is taking the run up.
      if (kill % 2 === 0) await training.printed('/16,384 steps')
      await new Promise((resolve) => setTimeout(resolve, random() * (kill % 2 === 0 ? 80 : 250)))
      training.process.kill('SIGKILL')
      const { code } = await training.ended
      if (kill % 2 === 0 && code === null && !(await readdir(run)).includes('summary.json')) midway++
      training = begin('resume', 'run')
    }
    expect((await training.ended).code).toBe(0)
    expect(midway, 'kills before the end').toBeGreaterThan(0)
    expect(await readJson(run, 'summary.json')).toMatchObject({ status: 'complete', totalSteps: 16384 })
    expect(await fingerprint(run)).toEqual(whole)
  })
})

describe('resume', () => {
  beforeEach(async () => {
    await cp(finished, join(here, 'run'), { recursive: true })
  })

  test('of a complete run finishes cleanly, and changes neither rollouts nor checkpoints nor metrics', async () => {
    const before = await contents(join(here, 'run'))
    const { code, stdout, stderr } = await inProcess(['resume', 'run'], here)
    expect(code).toBe(0)
    expect(stdout).toContain('complete: 2,048 steps')
    expect(stderr).toContain('run is complete: there is nothing to do; to continue, give it more (totalSteps=…)\n')
    expect(stderr).not.toContain('learns')
    expect(await contents(join(here, 'run'))).toEqual(before)
  })

  test('of a run by kernels that are not here is refused; kernels= goes on, and warns, --quiet or not', async () => {
    const path = join(here, 'run/checkpoints/00000008/manifest.json')
    await editManifest(path, (whole) => ({ ...whole, kernels: 'other' }))
    const refused = await inProcess(['resume', 'run', '--quiet'], here)
    expect(refused.code).toBe(1)
    expect(refused.stderr).toMatch(
      /^colonnade: run run: got a checkpoint by other kernels, expected one by plain, simd/,
    )
    const { code, stderr } = await inProcess(['resume', 'run', 'kernels=simd', '--quiet'], here)
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: 'colonnade: warning: kernels was other and is simd: the run continues, but with other bits\n',
    })
  })

  test('of a run with a corrupt checkpoint says which file, and drops nothing', async () => {
    const path = join(here, 'run/checkpoints/00000008/columns.safetensors')
    await writeFile(path, (await readFile(path)).subarray(8))
    const before = await contents(here)
    const { code, stdout, stderr } = await inProcess(['resume', 'run'], here)
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toMatch(
      /^colonnade: checkpoint run\/checkpoints\/00000008: got columns\.safetensors with SHA-256 .+corrupt\n$/,
    )
    expect(await contents(here)).toEqual(before)
  })

  test('of a run that was moved goes by where it is now', async () => {
    await rename(join(here, 'run'), join(here, 'moved'))
    await rm(join(here, 'moved/summary.json'))
    const { code, stdout } = await inProcess(['resume', 'moved', '--json'], here)
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({ folder: 'moved', files: { config: 'moved/config.json' } })
  })
})

const commands: [string, string[], number][] = [
  ['a command', ['evaluate', 'RUN', 'episodes=2', '--json'], 0],
  ['a word that is unknown', ['trian', 'CartPole-v1'], 1],
  ['help', ['--help'], 0],
  ['a file', ['export', 'RUN', 'out=a.arrow', 'episodes=2'], 0],
  ['an option that is unknown', ['environments', '--jsn'], 1],
  ['a folder that is not there', ['resume', 'nowhere'], 1],
  ['a value that is wrong', ['train', 'CartPole-v1', 'numLanes=0'], 1],
]

test.each(rowsOf(commands, 2))(
  'a process of its own prints and ends as a call in this one does: %s',
  async (_, words, code) => {
    const given = words.map((word) => word.replace('RUN', finished))
    const process = await colonnade(given, here)
    expect(process.code).toBe(code)
    expect(await inProcess(given, here)).toEqual(process)
  },
)

test('the command that package.json names can be run by itself', async () => {
  const { bin } = JSON.parse(await readFile(new URL('../package.json', import.meta.url), 'utf8'))
  expect(join(fileURLToPath(new URL('..', import.meta.url)), bin.colonnade)).toBe(MAIN)
  expect((await readFile(MAIN, 'utf8')).split('\n')[0]).toBe('#!/usr/bin/env node')
  expect((await start(MAIN, ['--version']).ended).stdout).toBe(`${VERSION}\n`) // As npx does.
})
