/** Whole processes that train Pendulum-v1: RLtools, compiled on the spot for this machine with OpenBLAS, and ours, at equal steps. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { check, checkClose, type Figure, figure, interleave, ratio } from '../measure.ts'
import { runOnce } from '../training/whole-runs.ts'
import { peerSource } from './python.ts'

const SEEDS = Array.from({ length: 20 }, (_, i) => i + 1)
/** Steps of an update of RLtools' example. */
const UPDATE_STEPS = 4096
/** The return that both are asked for. */
const WANTED_RETURN = -180

interface Answer {
  readonly trainingSeconds: number
  readonly steps: number
  readonly episodeReturn: number
}

/** Prints where the two packages lie. RLtools' own import wants a compiler's packages that are not needed here. */
const FIND = `
import importlib.util, scipy_openblas32
print(importlib.util.find_spec('rltools').submodule_search_locations[0])
print(scipy_openblas32.get_lib_dir())`

/** Compiles the program that makes `updates` updates. Throws where the compiler or one of the packages is not there. */
function compile(python: string, folder: string, updates: number): string {
  const packages = execFileSync(python, ['-c', FIND], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
  const [source, libraries] = packages.trim().split('\n') as [string, string]
  const program = join(folder, 'rltools')
  const blas = ['-DRL_TOOLS_BACKEND_ENABLE_OPENBLAS', ...['s', 'd'].map((t) => `-Dcblas_${t}gemm=scipy_cblas_${t}gemm`)]
  execFileSync('g++', [
    ...['-std=c++17', '-O3', '-march=native', '-ffast-math', '-DNDEBUG', `-DUPDATES=${updates}`, ...blas],
    ...['-I', join(source, 'external', 'rl_tools', 'include'), peerSource('rltools.cpp'), '-o', program],
    ...[join(libraries, 'libscipy_openblas.so'), `-Wl,-rpath,${libraries}`],
  ])
  return program
}

/** One seed a round, both in turns. */
export async function rltoolsFigures(python: string): Promise<Figure[]> {
  const folder = mkdtempSync(join(tmpdir(), 'colonnade-rltools-'))
  try {
    const { steps } = runOnce('Pendulum-v1', 1)
    const program = compile(python, folder, Math.round(steps / UPDATE_STEPS))
    const ours: Answer[] = []
    const theirs: Answer[] = []
    const env = { ...process.env, OPENBLAS_NUM_THREADS: '1' }
    const seconds = await interleave(
      {
        theirs: () => {
          const start = performance.now()
          const seed = SEEDS[theirs.length]!
          theirs.push(JSON.parse(execFileSync(program, [String(seed)], { encoding: 'utf8', env })) as Answer)
          return (performance.now() - start) / 1000
        },
        ours: () => {
          const run = runOnce('Pendulum-v1', SEEDS[ours.length]!)
          ours.push(run)
          return run.wholeSeconds
        },
      },
      { repeats: SEEDS.length, warmups: 0 },
    )
    checkClose(ours[0]!.steps, theirs[0]!.steps, 0.01, 'our number of steps')
    const reached = (runs: readonly Answer[]) =>
      runs.filter(({ episodeReturn }) => episodeReturn >= WANTED_RETURN).length
    check(reached(ours) > 0 && reached(theirs) > 0, `both reach ${WANTED_RETURN} with a seed`)
    const trained = (runs: readonly Answer[]) => runs.map(({ trainingSeconds }) => trainingSeconds)
    const returns = (runs: readonly Answer[]) => runs.map(({ episodeReturn }) => episodeReturn)
    const name = `Pendulum-v1, PPO, ${steps} steps, seeds 1–${SEEDS.length}`
    return [
      figure(`${name}, RLtools 2.2.1 with OpenBLAS, 1 thread, whole process`, 's', seconds.theirs),
      figure(`${name}, RLtools, training`, 's', trained(theirs)),
      figure(
        `${name}, RLtools, return of 100 fresh episodes (${reached(theirs)} above ${WANTED_RETURN})`,
        'return',
        returns(theirs),
      ),
      {
        ...figure(`${name}, Colonnade by its preset, whole process`, 's', seconds.ours),
        ratios: [ratio('RLtools', seconds.theirs, seconds.ours, { atLeast: 0.77 })],
      },
      {
        ...figure(`${name}, Colonnade, training`, 's', trained(ours)),
        ratios: [ratio('RLtools', trained(theirs), trained(ours), { atLeast: 1 })],
      },
      figure(
        `${name}, Colonnade, return of 100 fresh episodes (${reached(ours)} above ${WANTED_RETURN})`,
        'return',
        returns(ours),
        {
          atLeast: WANTED_RETURN,
        },
      ),
    ]
  } finally {
    rmSync(folder, { recursive: true })
  }
}
