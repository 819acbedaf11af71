/** The package's entries, as in its `exports`, and their names. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'

const root = fileURLToPath(new URL('../..', import.meta.url))
const { exports } = JSON.parse(readFileSync(`${root}/package.json`, 'utf8')) as {
  exports: Record<string, { types: string; default: string }>
}

/** An entry: its specifier, and its path in the repository. */
export interface Entry {
  readonly specifier: string
  readonly source: string
  readonly declarations: string
  readonly module: string
}

/** A name that an entry exports. */
export interface ExportedName {
  readonly name: string
  /** False for types. */
  readonly isValue: boolean
  readonly isDocumented: boolean
}

export const entries: readonly Entry[] = Object.entries(exports)
  .filter(([, { types }]) => types !== undefined)
  .map(([path, { types, default: module }]) => ({
    specifier: path.replace('.', 'colonnade'),
    source: types.replace('./dist/', '').replace('.d.ts', '.ts'),
    declarations: types.replace('./', ''),
    module: module.replace('./', ''),
  }))

export const entrySpecifiers = entries.map(({ specifier }) => specifier)

/** The names that each entry exports, by specifier, from its built declarations. */
export function namesOfEntries(): Map<string, ExportedName[]> {
  const { config } = ts.readConfigFile(`${root}/tsconfig.json`, ts.sys.readFile)
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root)
  const paths = entries.map((entry) => root + entry.declarations)
  const program = ts.createProgram(paths, { ...options, noLib: true, types: [], noEmit: true })
  const checker = program.getTypeChecker()
  const namesOf = (path: string): ExportedName[] => {
    const module = checker.getSymbolAtLocation(program.getSourceFile(path)!)!
    return checker.getExportsOfModule(module).map((symbol) => {
      const isAlias = (symbol.flags & ts.SymbolFlags.Alias) !== 0
      const target = isAlias ? checker.getAliasedSymbol(symbol) : symbol
      return {
        name: symbol.name,
        isValue:
          (target.flags & ts.SymbolFlags.Value) !== 0 && !symbol.declarations!.some(ts.isTypeOnlyExportDeclaration),
        isDocumented: target.getDocumentationComment(checker).length > 0,
      }
    })
  }
  return new Map(entries.map(({ specifier }, i) => [specifier, namesOf(paths[i]!)]))
}
