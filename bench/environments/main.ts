/** `npm run bench -- environments`: steps a second without a policy, on one core. */
import { cartPole, type EnvironmentDefinition, environments, pendulum } from '../../src/index.ts'
import { type Figure, figure, interleave, rates } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { environmentRunner } from './steps.ts'

const LANES = [1024, 8192, 1_048_576]
const STEPS = 4_194_304
/** Of those whose step is no kernel. */
const OTHERS = { lanes: 8192, steps: 524_288 }

const figures: Figure[] = []
const skipped: string[] = []

async function measure(environment: EnvironmentDefinition, numLanes: number, steps: number): Promise<void> {
  const runner = await environmentRunner(environment, numLanes, steps / numLanes)
  const { ours } = await interleave({ ours: runner }, { warmups: 2 })
  const name = `${environment.id}, environment only, ${numLanes.toLocaleString('en')} lanes`
  figures.push(figure(name, 'steps/s', rates(steps, ours)))
}

for (const environment of [cartPole(), pendulum()]) {
  for (const numLanes of LANES) await measure(environment, numLanes, STEPS)
}
for (const factory of environments) {
  if (factory.id === 'CartPole-v1' || factory.id === 'Pendulum-v1') continue
  const environment = factory('actionMask' in factory.settings ? { actionMask: false } : {})
  if (environment.actionMask) skipped.push(`${environment.id}: its mask forbids the actions at random of this bench`)
  else await measure(environment, OTHERS.lanes, OTHERS.steps)
}
reportRoom('environments', figures, skipped)
