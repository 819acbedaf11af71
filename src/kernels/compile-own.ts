/** Compiles users' own kernels (`own.ts`) with AssemblyScript, an optional peer. */
import { checkGiven, InputError, show } from '../base/errors.ts'
import { checkKernels } from './own.ts'

/** Options of the compiler: the module imports a shared memory, and has no data. */
const OPTIONS = [
  ...['-O3', '--noAssert', '--runtime', 'stub', '--importMemory', '--noExportMemory', '--enable', 'simd'],
  ...['--enable', 'threads', '--sharedMemory', '--initialMemory', '1', '--maximumMemory', '65536', '--noColors'],
]

/**
 * Compiles a file of AssemblyScript into a module for `defineKernels`, checks it and writes it. Returns the names of
 * its exported functions. @throws InputError if AssemblyScript is not installed or reports errors, and if the module
 * has data or imports anything but its memory.
 */
export async function compileKernels(source: string, out: string): Promise<readonly string[]> {
  checkGiven('source of compileKernels', source, 'a text')
  checkGiven('out of compileKernels', out, 'a text')
  const { dirname, basename } = await import('node:path')
  const asc = await loadCompiler()
  let made: Uint8Array<ArrayBuffer> | undefined
  const words = [basename(source), '--baseDir', dirname(source), '--outFile', 'made.wasm', ...OPTIONS]
  const { error, stderr } = await asc.main(words, {
    writeFile: (_, data) => {
      if (typeof data !== 'string') made = new Uint8Array(data)
    },
  })
  if (error !== null || made === undefined) {
    const got = stderr.toString().trim() || (error?.message ?? 'no module')
    throw new InputError(`kernels ${source}`, got, 'a file of AssemblyScript')
  }
  const names = checkKernels(`kernels ${source}`, made)
  const { writeWhole } = await import('../base/files/files.ts') // Kernels also run where there are no files.
  await writeWhole(out, [made])
  return names
}

async function loadCompiler(): Promise<typeof import('assemblyscript/asc')> {
  const { importPackage } = await import('../base/files/packages.ts')
  try {
    return await importPackage('assemblyscript/dist/asc.js')
  } catch (cause) {
    const got = `no assemblyscript (${show((cause as Error).message)})`
    throw new InputError('compiling kernels', got, 'npm install --save-dev assemblyscript', { cause })
  }
}
