/** Compiles the C twin where GCC is there, and runs it. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export interface TwinFigures {
  readonly layer: { readonly seconds: number; readonly sum: number }
  readonly rows: Readonly<
    Record<
      string,
      { readonly forward: number; readonly forwardSum: number; readonly update: number; readonly updateSum: number }
    >
  >
}

/** Without these GCC leaves the twin's tanh scalar: its minimum and maximum might trap. */
const FLAGS = ['-O3', '-fno-trapping-math', '-fno-math-errno']

/** Median seconds and sums of the twin for the given instruction set; undefined without a compiler that knows it. */
export function runTwin(architecture: string, rows: readonly number[]): TwinFigures | undefined {
  const inDist = import.meta.url.includes('/dist/bench/kernels/')
  const source = new URL(inDist ? '../../../bench/kernels/twin.c' : './twin.c', import.meta.url)
  const folder = mkdtempSync(join(tmpdir(), 'colonnade-twin-'))
  try {
    const program = join(folder, 'twin')
    execFileSync('gcc', [...FLAGS, `-march=${architecture}`, fileURLToPath(source), '-o', program, '-lm'], {
      stdio: 'ignore',
    })
    return JSON.parse(execFileSync(program, rows.map(String), { encoding: 'utf8' })) as TwinFigures
  } catch {
    return undefined
  } finally {
    rmSync(folder, { recursive: true })
  }
}
