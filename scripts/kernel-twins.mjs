// Reads which kernels have a compiled twin, and writes the module that hands the twins their arguments.
//
// src/kernels/plain.ts lists the kernels, and src/kernels/grids/plain.ts those of grid games, which have a module of their own. The twins of those in `dense.ts` are in `dense.native.c` beside it, named KERNEL(name). A twin
// takes what it needs of its kernel's parameters, by their names:
//
//   weight                a column of the kernel, as a pointer to its elements (the offset of its first byte); a number
//                         or boolean, as it is
//   weightLength          the number of the column's elements (int32_t)
//   weightElementBytes    the size of one of its elements in bytes (int32_t)
//
// where `weight` is a parameter of the kernel, or a member of a parameter that groups columns and numbers (its methods do not count). Members of two
// groups that have one name, and those whose name is a parameter's, are known by that of their group, too: `rolloutValue` is
// `rollout.value`, and may always be called so. A leading underscore does not count. What a twin leaves out (workspace of the plain body) is not handed over. Columns that may be of
// f32 or f64, in a kernel whose twin does not ask for the size of elements, go to the plain body where they are of f64.
//
// A twin is compiled to WebAssembly and, where the source says which calls take long enough for that, for the processor as well:
//
//   WORTH(denseForward, numRows * numInputs * numOutputs, 4096)    the name, a product of numbers of the twin, its least value
//
// or several such lines, all of which have to hold. Calls below that go to WebAssembly: the way to a native body costs more there than it saves.
// BEYOND(globalNorm) instead: the native body serves only where columns lie outside of WebAssembly's memory (src/kernels/compiled.ts).
import { existsSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = join(root, 'src/kernels')
/** The libraries of the language, which are read once. */
const libraries = new Map()
const COLUMN = /^(Float32|Float64|Int8|Uint8|Int16|Uint16|Int32|Uint32)Array$/
const NUMBER = /^(int32_t|uint32_t|float|double)$/
/** What a column's elements are in C. */
const ELEMENTS = {
  ...{ Float32Array: 'float', Float64Array: 'double', Int8Array: 'int8_t', Uint8Array: 'uint8_t' },
  ...{ Int16Array: 'int16_t', Uint16Array: 'uint16_t', Int32Array: 'int32_t', Uint32Array: 'uint32_t' },
}

/**
 * The kernels of a registry that have twins.
 * @param {string} registry path of a module that exports kernels, and nothing else
 * @returns {{ name: string, module: string, text: string, parameters: { name: string, type: string }[], result: string }[]}
 *   by name: the twin's file relative to the registry's folder, the member that calls it, and what the twin takes and returns. The type of a column is that of its elements in C with a star
 */
export function readTwins(registry = join(folder, 'plain.ts')) {
  const options = { strict: true, target: ts.ScriptTarget.ES2022, noEmit: true, types: [] }
  const host = ts.createCompilerHost(options)
  const read = host.getSourceFile
  host.getSourceFile = (path, ...way) => {
    if (!/\/typescript\/lib\/lib\./.test(path)) return read(path, ...way)
    if (!libraries.has(path)) libraries.set(path, read(path, ...way))
    return libraries.get(path)
  }
  const program = ts.createProgram([registry], options, host)
  const checker = program.getTypeChecker()
  const kernels = checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(registry)))
  const twinsOf = new Map()
  const twins = []
  for (const symbol of kernels) {
    const kernel = checker.getAliasedSymbol(symbol).valueDeclaration
    if (!kernel || !ts.isFunctionDeclaration(kernel)) throw new Error(`${registry}: ${symbol.name} is not a function`)
    const path = kernel.getSourceFile().fileName.replace(/\.ts$/, '')
    if (!twinsOf.has(path)) {
      const source = `${path}.native.c`
      const text = existsSync(source) ? readFileSync(source, 'utf8') : ''
      twinsOf.set(path, { functions: bodiesIn(source, text), worth: worthIn(text) })
    }
    const { functions, worth } = twinsOf.get(path)
    const twin = functions.get(symbol.name)
    if (twin === undefined) continue
    const module = `./${relative(join(registry, '..'), twin.path)}`
    twins.push({ name: symbol.name, module, ...member(checker, kernel, twin, worth.get(symbol.name)) })
  }
  return twins.sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** The registries of kernels that have modules of their own, relative to src/kernels: all others' and that of grid games. */
export const REGISTRIES = ['plain.ts', 'grids/plain.ts']

/** The path of a registry of ours. */
export const registryAt = (name) => join(folder, name)

const ALL_OTHERS = "import type { At, Kernels } from './kernels.ts'"
const OF_A_FOLDER = `import type { At } from '../kernels.ts'
import type * as plain from './plain.ts'

type Kernels = typeof plain`

/** The text of the twins.ts beside a registry. */
export function bindingOf(twins, registry = 'plain.ts') {
  const usesPlain = twins.some(({ text }) => text.includes('return plain.'))
  return `// Made by \`npm run build\` (scripts/kernel-twins.mjs) from the signatures of the kernels and of their twins in C.
${registry === 'plain.ts' ? ALL_OTHERS : OF_A_FOLDER}

/** The kernels that have compiled bodies. */
export type Twins = Pick<Kernels, ${twins.map(({ name }) => `'${name}'`).join(' | ')}>

/** What a module exports. */
export type Bodies = Readonly<Record<keyof Twins, (...numbers: (number | boolean)[]) => number>>

/**
 * Members with the signatures of the plain kernels, that hand the compiled bodies byte offsets. \`native\`: those that serve calls
 * which take long enough.
 */
export function bindTwins(body: Bodies, at: At, ${usesPlain ? 'plain' : '_plain'}: Kernels, native: Bodies = body): Twins {
  return {
${twins.map(({ text }) => text).join('\n')}
  }
}
`
}

/** The bodies in a file of C, by name: what they take and return. */
function bodiesIn(path, text) {
  const heads = text.matchAll(/^(\w+) KERNEL\((\w+)\)\(([^)]*)\) \{$/gm)
  return new Map(
    [...heads].map(([, result, name, parameters]) => [
      name,
      { path, result, parameters: parameters.split(/,\s*/).map(parameterOf) },
    ]),
  )
}

/** A parameter of a function in C; the type of a column ends in a star. */
function parameterOf(text) {
  const [, type, star, name] = /^(\w+) (\*?)(?:restrict )?(\w+)$/.exec(text) ?? []
  return { name, type: star === '*' ? `${type} *` : type }
}

/** Which calls of the native bodies in a file are worth their way, by name: a list of what they need. */
function worthIn(text) {
  const lines = [...text.matchAll(/^WORTH\((\w+), ([\w *-]+), (\d+)\)$/gm)]
  const needs = new Map()
  for (const [, name, work, least] of lines) needs.set(name, [...(needs.get(name) ?? []), { work, least }])
  return needs
}

/**
 * The member of `bindTwins` for a kernel and its twin, the text of a method; and the twin's parameters and result. `worth`: of a
 * kernel with a native body.
 */
function member(checker, kernel, twin, worth) {
  const refuse = (what) => {
    throw new Error(`${relative(root, twin.path)}: ${kernel.name.text} ${what}`)
  }
  const names = kernel.parameters.map(({ name }) =>
    ts.isIdentifier(name) ? name.text : refuse('has a group without a name'),
  )
  const sources = sourcesOf(checker, kernel, refuse)
  const used = new Set()
  let asksForSize = false

  const handed = twin.parameters.map(({ name, type }) => {
    const takes = (source, kind) => {
      if (source.kind !== kind) refuse(`takes ${name}: ${type}, which is no ${source.kind}`)
      used.add(source.parameter)
      return source
    }
    const source = sources.get(name)
    if (source !== undefined) {
      if (NUMBER.test(type)) return takes(source, 'number').text
      if (type === 'bool') return takes(source, 'boolean').text
      const { text, element } = takes(source, 'column')
      if (type === `${element} *`) return `at(${text})`
      refuse(`takes ${name}: ${type}, which is ${element} * in its plain twin`)
    }
    const [, column, property] = /^(.+)(Length|ElementBytes)$/.exec(name) ?? []
    if (source === undefined && sources.get(column)?.kind === 'column' && type === 'int32_t') {
      const { text } = takes(sources.get(column), 'column')
      if (property === 'Length') return `${text}.length`
      asksForSize = true
      return `${text}.BYTES_PER_ELEMENT`
    }
    return refuse(`takes ${name}: ${type}, which its plain twin has not; it has ${[...sources.keys()].join(', ')}`)
  })

  const parameters = names.map((name) => (used.has(name) || name.startsWith('_') ? name : `_${name}`))
  const result = returns(checker, kernel, twin, refuse)
  const signature = { parameters: twin.parameters, result: twin.result }
  const numberOf = (name) => {
    const at = twin.parameters.findIndex((parameter) => parameter.name === name && NUMBER.test(parameter.type))
    return at === -1 ? refuse(`has a native body by ${name}, which is no number of its twin`) : handed[at]
  }
  const tooLittle = worth?.map(({ work, least }) => `${work.replace(/[a-z]\w*/gi, numberOf)} < ${least}`).join(' || ')
  // Two calls rather than one of what is chosen: each then has one function to call.
  const callOf = (body) => `${result ? 'return ' : ''}${body}.${kernel.name.text}(${handed.join(', ')})`
  const choice = `if (${tooLittle}) ${callOf('body')}\n      else ${callOf('native')}`
  const call = worth === undefined ? callOf('body') : choice
  const mixed = asksForSize ? [] : [...sources.values()].filter(({ mixed }) => mixed)
  const head = `    ${kernel.name.text}(${(mixed.length > 0 ? names : parameters).join(', ')}) {`
  if (mixed.length === 0) return { text: `${head}\n      ${call}\n    },`, ...signature }
  const isDouble = mixed.map(({ text }) => `${text} instanceof Float64Array`).join(' || ')
  const text = `${head}\n      if (${isDouble}) return plain.${kernel.name.text}(${names.join(', ')})\n      ${call}\n    },`
  return { text, ...signature }
}

/** What a twin may ask for, by name: where it comes from and what it is. */
function sourcesOf(checker, kernel, refuse) {
  const [sources, members] = [new Map(), new Map()]
  const add = (name, source) => {
    if (sources.has(name)) refuse(`has two parameters or members named ${name}`)
    sources.set(name, source)
  }
  for (const parameter of kernel.parameters) {
    const name = parameter.name.text
    const type = checker.getTypeAtLocation(parameter)
    const kind = kindOf(checker, type)
    if (kind !== undefined) {
      add(name.replace(/^_/, ''), { ...kind, text: name, parameter: name })
      continue
    }
    if (!(type.flags & ts.TypeFlags.Object)) {
      refuse(`has ${name}: ${checker.typeToString(type)}, which is no column, number, boolean or group of them`)
    }
    for (const property of checker.getPropertiesOfType(type)) {
      const propertyType = checker.getTypeOfSymbol(property)
      if (propertyType.getCallSignatures().length > 0) continue // A method, which the plain twin alone calls.
      const inside = kindOf(checker, propertyType)
      const text = `${name}.${property.name}`
      if (inside === undefined) refuse(`has ${text}, which is no column, number or boolean`)
      const source = { ...inside, text, parameter: name }
      add(`${name}${property.name[0].toUpperCase()}${property.name.slice(1)}`, source)
      members.set(property.name, members.has(property.name) ? null : source)
    }
  }
  for (const [name, source] of members) if (source !== null && !sources.has(name)) sources.set(name, source)
  return sources
}

/** Whether a type is a column (of one type or of several), a number or a boolean; undefined for anything else. */
function kindOf(checker, type) {
  const parts = type.isUnion() ? type.types : [type]
  if (parts.every(({ flags }) => flags & ts.TypeFlags.NumberLike)) return { kind: 'number' }
  if (parts.every(({ flags }) => flags & ts.TypeFlags.BooleanLike)) return { kind: 'boolean' }
  const names = parts.map((part) => part.getSymbol()?.name ?? checker.typeToString(part))
  if (!names.every((name) => COLUMN.test(name))) return undefined
  const element = ELEMENTS[names.find((name) => name !== 'Float64Array') ?? 'Float64Array']
  return { kind: 'column', element, mixed: names.length > 1 && names.includes('Float64Array') }
}

/** Whether a kernel answers with a number; it and its twin must agree. */
function returns(checker, kernel, twin, refuse) {
  const type = checker.getReturnTypeOfSignature(checker.getSignatureFromDeclaration(kernel))
  const isVoid = (type.flags & ts.TypeFlags.Void) !== 0
  const twinType = twin.result
  if (!isVoid && !(type.flags & ts.TypeFlags.NumberLike)) refuse(`returns ${checker.typeToString(type)}, not a number`)
  if (isVoid ? twinType !== 'void' : !NUMBER.test(twinType)) {
    refuse(`returns ${twinType}, its plain twin ${checker.typeToString(type)}`)
  }
  return !isVoid
}
