/** Compiles kernels of one's own (`own.ts`) with AssemblyScript, which is an optional peer. */
import { checkGiven, InputError, show } from '../base/errors.ts'
import { checkKernels } from './own.ts'

/** How such a module has to be made: for a shared memory that it imports, and without data. */
const OPTIONS = [
  ...['-O3', '--noAssert', '--runtime', 'stub', '--importMemory', '--noExportMemory', '--enable', 'simd'],
  ...['--enable', 'threads', '--sharedMemory', '--initialMemory', '1', '--maximumMemory', '65536', '--noColors'],
]

/**
 * Compiles a file of AssemblyScript into a module for `defineKernels`, and writes it when it has been checked. Returns the names
 * of the functions that it exports.
 * @throws InputError where AssemblyScript is not installed or finds faults in the file, and where the module would have data or
 * import anything but its memory.
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
