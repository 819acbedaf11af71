import { checkGiven } from '../base/errors.ts'
import { drawCurves } from '../telemetry/curves.ts'
import type { Simulation } from './simulation.ts'

/** Draws an SVG document: trained tokens per second over the number of engines, a curve for each maxStaleness. */
export function drawSimulations(
  simulations: readonly { readonly engines: number; readonly maxStaleness: number; readonly simulation: Simulation }[],
): string {
  checkGiven('simulations of drawSimulations', simulations, 'a list')
  const staleness = [...new Set(simulations.map(({ maxStaleness }) => maxStaleness))]
  const curves = staleness.map((maxStaleness) => ({
    name: `maxStaleness ${maxStaleness}`,
    points: simulations
      .filter((each) => each.maxStaleness === maxStaleness)
      .map(({ engines, simulation }) => ({ x: engines, y: simulation.trainedTokensPerSecond })),
  }))
  return drawCurves(curves, { x: 'engines', y: 'trained tokens/s' })
}
