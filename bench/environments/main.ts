/** `npm run bench -- environments`: steps a second without a policy, on one core. */
import { cartPole, pendulum } from '../../src/index.ts'
import { type Figure, figure, interleave, rates } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { environmentRunner } from './steps.ts'

const LANES = [1024, 8192, 1_048_576]
const STEPS = 4_194_304

const figures: Figure[] = []
for (const environment of [cartPole(), pendulum()]) {
  for (const numLanes of LANES) {
    const ticks = STEPS / numLanes
    const { ours } = await interleave({ ours: await environmentRunner(environment, numLanes, ticks) }, { warmups: 2 })
    const name = `${environment.id}, environment only, ${numLanes.toLocaleString('en')} lanes`
    figures.push(figure(name, 'steps/s', rates(STEPS, ours)))
  }
}
reportRoom('environments', figures)
