import { InputError } from '../../base/errors.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { compileKernels } from '../../kernels/bind.ts'

/** colonnade compile <file> [out=FILE.wasm]: compiles your own kernels, for `defineKernels`. */
export const compileCommand: Command = async ({ words, json }) => {
  const { subject: source, texts } = splitWords(words, 'a file of AssemblyScript, like walk.simd.ts')
  if (!source.endsWith('.ts')) throw new InputError('first word', source, 'a file of AssemblyScript, like walk.simd.ts')
  const { out = source.replace(/(\.simd)?\.ts$/, '.wasm'), ...others } = texts
  readKeys({}, others)
  const kernels = await compileKernels(source, out)
  if (!json) console.log(`${out}: ${kernels.join(', ')}`)
  return { out, kernels }
}
