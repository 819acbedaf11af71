import { execFile } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, expect, test } from 'vitest'
import { skipLoudly } from './support/command.ts'
import { findInstalled } from './support/python.ts'
import { temporaryFolder } from './support/temporary.ts'

const examples = new URL('../dist/examples/', import.meta.url).pathname
let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
})

const run = async (name: string) =>
  (await promisify(execFile)(process.execPath, [join(examples, name)], { cwd: folder })).stdout

test('quickstart learns, and writes a checkpoint and an Arrow file', async () => {
  const returns = [...(await run('quickstart.js')).matchAll(/return ([\d.]+)/g)].map(([, figure]) => Number(figure))
  expect(returns.at(-1)!).toBeGreaterThan(2 * returns[0]!)
  expect(existsSync(join(folder, 'runs/quickstart/cartpole.arrow'))).toBe(true)
  expect(readdirSync(join(folder, 'runs/quickstart/checkpoints'))).toHaveLength(1)
})

test("custom-environment learns the corridor: the greedy policy's return is near the best", async () => {
  // Started 0 to 10 cells from the last but one, the best return is 1 − 0.05 · (0 … 10), 0.75 in the mean.
  const greedy = Number(/greedy: return ([-\d.]+)/.exec(await run('custom-environment.js'))![1])
  expect(greedy).toBeGreaterThan(0.65)
})

test('from-objects learns a game that a class plays: the greedy policy catches nearly every apple', async () => {
  const greedy = Number(/greedy: return ([-\d.]+)/.exec(await run('from-objects.js'))![1])
  expect(greedy).toBeGreaterThan(0.9)
})

test('orchard learns a game on bitecs from its components, and plays it in real time', async () => {
  const output = await run('orchard/train.js')
  expect(output).toContain('11 columns lie in shared memory, 656 bytes a lane; a step copies 36 bytes')
  // Standing about, or running at random, it picks fewer than 5.
  expect(Number(/greedy: ([\d.]+)/.exec(output)![1])).toBeGreaterThan(20)
  expect(Number(/in real time: ([\d.]+)/.exec(output)![1])).toBeGreaterThanOrEqual(4)
})

test('the fish of the pond learn to eat algae and to flee from the pike', async () => {
  const { createPond } = await import('../examples/pond/pond.ts')
  const { learn } = await import('../examples/pond/learn.ts')
  const pond = createPond()
  pond.Steering.turn.fill(Number.NaN) // The pike hunts.
  const fates: { steps: number; caught: number; eaten: number }[] = []
  await learn(pond.memory, 480_000, () => {
    fates.push({ steps: pond.steps[0]!, caught: pond.caught[0]!, eaten: pond.eaten[0]! })
  })
  const rates = ([from, to]: [number, number]) => {
    const [first, last] = [fates.at(from)!, fates.at(to)!]
    const steps = last.steps - first.steps
    return { caught: (last.caught - first.caught) / steps, eaten: (last.eaten - first.eaten) / steps }
  }
  const [early, late] = [rates([0, 4]), rates([-11, -1])]
  expect(late.caught).toBeLessThan(0.7 * early.caught)
  expect(late.eaten).toBeGreaterThan(1.5 * early.eaten)
})

test('custom-algorithm learns CartPole by its own loss', async () => {
  const output = await run('custom-algorithm.js')
  expect(Number(/greedy: return ([-\d.]+)/.exec(output)![1])).toBeGreaterThan(400)
  for (const [, kl] of output.matchAll(/KL ([\d.]+)/g)) expect(Number(kl)).toBeLessThan(0.1)
})

test('custom-optimizer learns CartPole by Lion', async () => {
  const returns = [...(await run('custom-optimizer.js')).matchAll(/return ([\d.]+)/g)].map(([, value]) => Number(value))
  expect(returns.at(-1)).toBeGreaterThan(150)
})

test('colony keeps a population alive over many generations', async () => {
  const lines = [...(await run('colony.js')).matchAll(/(\d+) agents, the youngest of generation (\d+); (\d+) births/g)]
  const figures = lines.map(([, ...figures]) => figures.map(Number))
  expect(figures).toHaveLength(6)
  for (const [agents] of figures) expect(agents).toBeGreaterThan(0)
  expect(figures.at(-1)![1]).toBeGreaterThan(10)
  expect(figures.at(-1)![2]).toBeGreaterThan(384) // More than there are lanes.
})

test('curiosity finds the far end of the hallway with every seed, and records its bonus', async () => {
  const [bare, curious] = (await run('curiosity.js')).split('\n')
  expect(bare).toMatch(/^scale 0: returns .*, last bonuses up to 0\.0000$/)
  expect(bare).toContain('0.00') // Without it, some seed never does.
  expect(curious).toMatch(/^scale 0\.02: returns 1\.00 1\.00 1\.00, last bonuses up to 0\.0[012]/)
})

test('custom-loss learns to reverse words by its own loss', async () => {
  const rewards = [...(await run('custom-loss.js')).matchAll(/reward ([\d.]+)/g)].map(([, reward]) => Number(reward))
  expect(rewards).toHaveLength(4)
  expect(rewards.at(-1)!).toBeGreaterThan(rewards[0]! + 0.1)
})

test('two-cohorts trains both and finds lanes by a query', async () => {
  const output = await run('two-cohorts.js')
  expect(output).toMatch(/update 12: cart [\d.]+, pendulum -[\d.]+/)
  expect(output).toContain('pendulum lanes: 16 17 18 19 20 21 22 23')
})

test('read-arrow reads what was written', async () => {
  const output = await run('read-arrow.js')
  expect(output).toContain('512 rows of CartPole-v1')
  expect(output).toContain('rewards sum to 512')
})

test('export-policy writes a policy that pushes the cart under its pole', async () => {
  const output = await run('export-policy.js')
  expect(output).toMatch(/^angle -0\.1: push left, .+\nangle 0\.1: push right, worth [\d.]+\n$/)
  const written = ['policy.mjs', 'policy.onnx', 'policy.safetensors']
  expect(readdirSync(join(folder, 'runs'))).toEqual(expect.arrayContaining(written))
})

test.runIf(import.meta.env.MODE === 'learn')(
  'guess-the-number learns, over several turns, to look where the number may be',
  async () => {
    // Ten guesses at random, told nothing, are right one time in ten; the best is 0.81.
    const greedy = Number(/greedy: reward ([\d.]+)/.exec(await run('guess-the-number.js'))![1])
    expect(greedy).toBeGreaterThan(0.5)
  },
)

test('league beats whom it began as, and exchanges its opponents', async () => {
  const lines = [...(await run('league.js')).matchAll(/update \d+: wins ([\d.]+) ([\d.]+) ([\d.]+)/g)]
  expect(lines).toHaveLength(5)
  for (const [, first] of lines.slice(-3)) expect(Number(first)).toBeGreaterThan(0.6)
})

test('own-columns computes advantages and a layer without a world', async () => {
  // Lane 0 earns 1 twice more, 1 + 0.9; lane 1 goes on to the end: Σ 0.9^k for k < 102. tanh 1 and tanh 0.5.
  expect(await run('own-columns.js')).toBe(
    "return of lane 0 at step 98: 1.900\nreturn of lane 1 at step 98: 10.000\nthe layer's first row: 0.7616 0.4621\n",
  )
})

test.runIf(import.meta.env.MODE === 'learn')('tool-agent learns to call its tool', async () => {
  const output = await run('tool-agent.js')
  const [, before] = /update 1: right [\d.]+, calls ([\d.]+)/.exec(output)!
  const [, reward, calls] = /greedy: reward ([\d.]+), calls ([\d.]+)/.exec(output)!
  expect(Number(before)).toBeLessThan(0.5)
  expect(Number(calls)).toBeGreaterThan(0.8)
  expect(Number(reward)).toBeGreaterThan(0.6) // Who guesses is right one time in seven; the best is 0.9.
})

test.each([
  ['guess-the-number.js', [], { id: 'text/guess' }],
  ['tool-agent.js', ['environment.cost=0.3'], { id: 'text/weekday', parameters: { cost: 0.3 } }],
])('%s is trained by settings from the command line', async (name, settings, environment) => {
  const main = new URL('../dist/src/cli/main.js', import.meta.url).pathname
  const words = [...settings, 'sft.updates=1', 'rl.updates=1', 'numLanes=8', 'threads=1', `out=runs/${name}`]
  await promisify(execFile)(process.execPath, [main, 'train', join(examples, name), ...words], { cwd: folder })
  const config = JSON.parse(await readFile(join(folder, 'runs', name, 'config.json'), 'utf8'))
  expect(config.environment).toMatchObject(environment)
})

test('every example is run here', () => {
  const names = readdirSync(examples).filter((name) => name.endsWith('.js'))
  expect(names).toEqual([
    'colony.js',
    'curiosity.js',
    'custom-algorithm.js',
    'custom-environment.js',
    'custom-loss.js',
    'custom-optimizer.js',
    'export-policy.js',
    'from-objects.js',
    'guess-the-number.js',
    'league.js',
    'own-columns.js',
    'quickstart.js',
    'read-arrow.js',
    'tool-agent.js',
    'two-cohorts.js',
  ])
})

test.runIf(import.meta.env.MODE === 'learn')(
  'next_digit.py, a program of the standard library, is trained unchanged by train agent=',
  async (context) => {
    const found = await findInstalled('urllib.request')
    if ('why' in found) return skipLoudly(context, `Python cannot be had here: ${found.why}`)
    const tasks = [0, 1, 2, 3, 4].map((digit) => JSON.stringify({ prompt: `${digit}`, answer: `${(digit + 1) % 5}` }))
    await writeFile(join(folder, 'digits.jsonl'), tasks.join('\n'))
    const agent = new URL('../examples/agents/next_digit.py', import.meta.url).pathname
    const words = [
      ...[
        'train',
        'text/dataset',
        'environment.path=digits.jsonl',
        'mode=rl',
        `agent=${found.python} ${agent}`,
        'seed=1',
      ],
      ...['anyText=true', 'width=32', 'layers=2', 'context=32'].map((each) => `languageModel.${each}`),
      ...['groupsPerUpdate=5', 'groupSize=8', 'updates=16', 'learningRate=0.01'].map((each) => `rl.${each}`),
      ...['threads=1', 'out=digits'],
    ]
    const cli = new URL('../dist/src/cli/main.js', import.meta.url).pathname
    await promisify(execFile)(process.execPath, [cli, ...words], { cwd: folder })
    const lines = (await readFile(join(folder, 'digits/metrics.jsonl'), 'utf8')).trim().split('\n')
    const rewards = lines.map((line) => (JSON.parse(line) as { reward: number }).reward)
    console.info(`rewards: ${rewards.map((reward) => reward.toFixed(2)).join(' ')}`)
    expect(rewards).toHaveLength(16)
    expect(rewards[0]).toBeLessThan(0.5) // One of five is right by chance.
    expect(rewards.slice(-3).reduce((sum, reward) => sum + reward, 0) / 3).toBeGreaterThan(0.85)
  },
)
