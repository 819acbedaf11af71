/**
 * `npm run bench -- startup`: what a process takes beyond bare node until it has told its version, run its first tick, or
 * trained. All kinds of process run in turns, and what is told is the difference, or ratio, of neighbors.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { VERSION } from '../../src/index.ts'
import { check, type Figure, figure, interleave, ratio } from '../measure.ts'
import { reportRoom } from '../report.ts'

const ROUNDS = 21
const WHOLE_ROUNDS = 15
const MAIN = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url))
const INDEX = new URL('../../src/index.js', import.meta.url).href
const FIRST_TICK = `
  import { cartPole, createWorld, mlp, tick } from '${INDEX}'
  const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 16, seed: 1 })
  await tick(world)
  console.log(world.cohorts[0].episode.step.join())`

/** Seconds of a process, from the request to its end; it must print `expected`. */
function processSeconds(words: readonly string[], expected: RegExp): number {
  const start = performance.now()
  const { status, stdout, stderr } = spawnSync(process.execPath, words, { encoding: 'utf8' })
  const seconds = (performance.now() - start) / 1000
  check(status === 0 && expected.test(stdout), `node ${words.join(' ')} prints ${expected}, not ${stdout}${stderr}`)
  return seconds
}

async function startup(): Promise<Figure[]> {
  const seconds = await interleave(
    {
      bare: () => processSeconds(['-e', '0'], /^$/),
      version: () => processSeconds([MAIN, '--version'], new RegExp(`^${VERSION}\n$`)),
      firstTick: () => processSeconds(['--input-type=module', '-e', FIRST_TICK], /^1(,1){15}\n$/),
    },
    { repeats: ROUNDS },
  )
  const beyond = (taken: readonly number[]) => taken.map((value, i) => 1000 * (value - seconds.bare[i]!))
  return [
    figure(
      'node -e 0',
      'ms',
      seconds.bare.map((value) => 1000 * value),
    ),
    figure('colonnade --version, beyond node -e 0', 'ms', beyond(seconds.version), { atMost: 60 }),
    figure('import and first tick of CartPole-v1, beyond node -e 0', 'ms', beyond(seconds.firstTick), { atMost: 100 }),
  ]
}

/** What `npm start` runs, beside the seconds that its summary gives to the training. */
async function wholeTraining(): Promise<Figure> {
  const folder = mkdtempSync(join(tmpdir(), 'colonnade-startup-'))
  try {
    const trained: number[] = []
    let round = 0
    const run = (): number => {
      const out = join(folder, String(round++))
      const seconds = processSeconds([MAIN, 'train', 'CartPole-v1', `out=${out}`], /^complete: /m)
      trained.push(JSON.parse(readFileSync(join(out, 'summary.json'), 'utf8')).seconds)
      return seconds
    }
    const { whole } = await interleave({ whole: run }, { repeats: WHOLE_ROUNDS })
    return {
      ...figure('colonnade train CartPole-v1, the whole process', 's', whole),
      ratios: [ratio('its training', whole, trained.slice(-WHOLE_ROUNDS), { atMost: 2.5 })],
    }
  } finally {
    rmSync(folder, { recursive: true })
  }
}

reportRoom('startup', [...(await startup()), await wholeTraining()])
