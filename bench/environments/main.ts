/** `npm run bench -- environments`: steps a second without a policy, on one core. */
import { cartPole, type EnvironmentDefinition, environments, pendulum } from '../../src/index.ts'
import { Companion } from '../companion.ts'
import { type Figure, figure, interleave, rates, ratio } from '../measure.ts'
import { installedPython, peerSource } from '../peers/python.ts'
import { reportRoom } from '../report.ts'
import { bareRunner, columnCartPole, plainCartPole } from './own.ts'
import { environmentRunner } from './steps.ts'

const LANES = [1024, 8192, 1_048_576]
const STEPS = 4_194_304
/** Of a step of one's own. */
const OWN = { lanes: 8192, steps: 4_194_304 }
/** Of Gymnasium's. */
const PEERS = { lanes: 256, steps: 16_384 }
/** Of those whose step is no kernel. */
const OTHERS = { lanes: 1024, steps: 131_072 }

const figures: Figure[] = []
const skipped: string[] = []

async function measure(environment: EnvironmentDefinition, numLanes: number, steps: number): Promise<void> {
  const runner = await environmentRunner(environment, numLanes, steps / numLanes)
  const { ours } = await interleave({ ours: runner }, { repeats: 5 })
  const name = `${environment.id}, environment only, ${numLanes.toLocaleString('en')} lanes`
  figures.push(figure(name, 'steps/s', rates(steps, ours)))
}

/** Steps of a user's own beside the built-in one: a plain one, the same without the systems and their checks, and one over columns. */
async function measureOwn(): Promise<void> {
  const { lanes, steps } = OWN
  const { bare, plain, columns, builtIn } = await interleave(
    {
      bare: await bareRunner(lanes, steps / lanes),
      plain: await environmentRunner(plainCartPole(), lanes, steps / lanes),
      columns: await environmentRunner(columnCartPole(), lanes, steps / lanes),
      builtIn: await environmentRunner(cartPole(), lanes, steps / lanes),
    },
    { warmups: 2 },
  )
  const name = `${lanes.toLocaleString('en')} lanes of CartPole`
  figures.push(figure(`${name}, a plain step of one's own, bare loop`, 'steps/s', rates(steps, bare)))
  figures.push({
    ...figure(`${name}, a plain step of one's own`, 'steps/s', rates(steps, plain), { atLeast: 30e6 }),
    ratios: [ratio('bare loop', bare, plain), ratio('built-in', builtIn, plain)],
  })
  figures.push({
    ...figure(`${name}, a step of one's own over columns`, 'steps/s', rates(steps, columns)),
    ratios: [ratio('plain step', plain, columns), ratio('built-in', builtIn, columns, { atLeast: 0.5 })],
  })
}

/** Gymnasium's vector environments of the same names, by one process of Python: their own vectorization, or one by one. */
async function measurePeers(): Promise<void> {
  const python = installedPython()
  if (python === undefined) {
    skipped.push('Gymnasium: no Python with it (COLONNADE_PYTHON, or `npm run bench -- peers` first)')
    return
  }
  const peer = new Companion(python, [peerSource('gymnasium_numpy.py')])
  try {
    for (const { id } of environments) {
      const { lanes, steps } = PEERS
      const ask = () =>
        peer.ask<{ seconds: number | null; mode: string; version: string }>(`vector ${id} ${lanes} ${steps / lanes}`)
      const { seconds, mode, version } = await ask()
      if (seconds === null) continue
      const { theirs } = await interleave({ theirs: async () => (await ask()).seconds! }, { repeats: 5, warmups: 0 })
      figures.push(figure(`${id}, Gymnasium ${version} (${mode}), ${lanes} lanes`, 'steps/s', rates(steps, theirs)))
    }
  } finally {
    peer.close()
  }
}

await measureOwn()
for (const environment of [cartPole(), pendulum()]) {
  for (const numLanes of LANES) await measure(environment, numLanes, STEPS)
}
for (const factory of environments) {
  if (factory.id === 'CartPole-v1' || factory.id === 'Pendulum-v1') continue
  await measure(factory(), OTHERS.lanes, OTHERS.steps)
}
await measurePeers()
reportRoom('environments', figures, skipped)
