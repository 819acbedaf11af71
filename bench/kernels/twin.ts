/** Compiles the C twin where GCC is there, and keeps it waiting for requests. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Companion } from '../companion.ts'

/** One request's answer: mean seconds of a call, and the first call's sum. */
export interface TwinAnswer {
  readonly seconds: number
  readonly sum: number
}

/** Without these GCC leaves the twin's tanh scalar: its minimum and maximum might trap. */
const FLAGS = ['-O3', '-fno-trapping-math', '-fno-math-errno']

/** The twin, compiled for the given instruction set; undefined without a compiler that knows it or a machine that runs it. */
export async function startTwin(
  architecture: string,
  rows: readonly number[],
  hidden = 64,
): Promise<Companion | undefined> {
  const inDist = import.meta.url.includes('/dist/bench/kernels/')
  const source = new URL(inDist ? '../../../bench/kernels/twin.c' : './twin.c', import.meta.url)
  const folder = mkdtempSync(join(tmpdir(), 'colonnade-twin-'))
  try {
    const program = join(folder, 'twin')
    const words = [
      `-march=${architecture}`,
      `-DHIDDEN=${hidden}`,
      fileURLToPath(source),
      '-o',
      program,
      '-lm',
      '-lpthread',
    ]
    execFileSync('gcc', [...FLAGS, ...words], { stdio: 'ignore' })
    const twin = new Companion(program, rows.map(String))
    await twin.ask('layer 0 1 1')
    return twin
  } catch {
    return undefined
  } finally {
    rmSync(folder, { recursive: true })
  }
}
