/** Whole runs, each in a process of its own, timed from the moment the process is asked for. */
import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { check, spread } from '../measure.ts'

/** One value a seed: the median of its repeats. */
export interface WholeRuns {
  readonly solvedSeconds: readonly number[]
  readonly solvedSteps: readonly number[]
  readonly wholeSeconds: readonly number[]
  readonly returns: readonly number[]
}

/** One process. */
export interface WholeRun {
  readonly solvedSeconds: number | null
  readonly solvedAtStep: number | null
  /** From the request to the end of the process, its evaluation included. */
  readonly wholeSeconds: number
  readonly trainingSeconds: number
  readonly steps: number
  readonly episodeReturn: number
}

export async function fromNode(
  id: string,
  { seeds, repeats }: { seeds: number[]; repeats: number },
): Promise<WholeRuns> {
  const runs = new Map<number, WholeRun[]>(seeds.map((seed) => [seed, []]))
  for (let round = 0; round < repeats; round++) {
    for (const seed of seeds) runs.get(seed)!.push(runOnce(id, seed))
  }
  const bySeed = (value: (run: WholeRun) => number) => seeds.map((seed) => spread(runs.get(seed)!.map(value)).median)
  const solves = runs.get(seeds[0]!)![0]!.solvedAtStep !== null
  for (const [seed, [first, ...others]] of runs) {
    const same = others.every(({ episodeReturn }) => episodeReturn === first!.episodeReturn)
    check(same, `repeated runs of ${id}, seed ${seed} return the same`)
    if (solves) check(first!.solvedAtStep !== null, `${id} is solved with seed ${seed}`)
  }
  return {
    solvedSeconds: solves ? bySeed(({ solvedSeconds }) => solvedSeconds!) : [],
    solvedSteps: solves ? bySeed(({ solvedAtStep }) => solvedAtStep!) : [],
    wholeSeconds: bySeed(({ wholeSeconds }) => wholeSeconds),
    returns: bySeed(({ episodeReturn }) => episodeReturn),
  }
}

/** Trains by the preset in a process of its own. */
export function runOnce(id: string, seed: number): WholeRun {
  const script = fileURLToPath(new URL('./whole-run.js', import.meta.url))
  const started = performance.timeOrigin + performance.now()
  const output = execFileSync(process.execPath, [script, id, String(seed), String(started)], { encoding: 'utf8' })
  const wholeSeconds = (performance.timeOrigin + performance.now() - started) / 1000
  return { ...(JSON.parse(output) as Omit<WholeRun, 'wholeSeconds'>), wholeSeconds }
}
