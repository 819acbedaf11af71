/** Files of settings: reads `config=run.yaml`, and writes the output of `--print-config`. */
import type { Document, Node, ParsedNode } from 'yaml'
import { InputError, show } from '../../base/errors.ts'
import { disk } from '../../base/files/files.ts'
import type { SettingValue } from '../../base/settings.ts'

/** Maximum bytes of such a file: the check for duplicate keys takes quadratic time. */
const CONFIG_BYTES = 2 ** 16

/** A value as a command line's word, and its line. */
export interface ConfigText {
  readonly text: string
  readonly line: number
}

/** A key's printed value, or the values that a sweep varies. */
export type ConfigValue = SettingValue | readonly SettingValue[]

/**
 * Reads the keys of a YAML or JSON file. Nested mappings become dotted keys. A list becomes one value with commas
 * between its entries; if entries are lists or contain commas, with bars, as in sweeps.
 * @throws InputError for a file that cannot be read, and with the line for invalid YAML, no mapping, an alias, or a
 * repeated key.
 */
export async function readConfigFile(path: string): Promise<ReadonlyMap<string, ConfigText>> {
  const { isMap, isScalar, isSeq, LineCounter, parseDocument } = await import('yaml')
  const bytes = await disk.read(path, CONFIG_BYTES, true).catch((cause: NodeJS.ErrnoException) => {
    const got = cause.code === 'ENOENT' ? 'no such file' : cause.message
    throw new InputError(`config ${path}`, got, 'a file of YAML or JSON with keys and values', { cause })
  })
  const lines = new LineCounter()
  const document: Document.Parsed = parseDocument(Buffer.from(bytes).toString(), { lineCounter: lines })
  const lineOf = (node: Node | null) => (node?.range ? lines.linePos(node.range[0]).line : 1)
  const [wrong] = document.errors
  if (wrong !== undefined) {
    const [what] = wrong.message.split(/ at line \d|\n/)
    throw new InputError(`${path}:${wrong.linePos?.[0].line ?? 1}`, what!, 'YAML or JSON')
  }
  const found = new Map<string, ConfigText>()
  const textOf = (key: string, node: ParsedNode | null): string => {
    if (node === null || isScalar(node)) {
      const { value, source } = node ?? { value: null, source: '' }
      return typeof value === 'number' ? source! : String(value) // The number as it was written, without rounding.
    }
    if (!isSeq(node)) {
      const got = isMap(node) ? 'an object in a list' : 'an alias'
      throw new InputError(`${path}:${lineOf(node)}, ${key}`, got, 'a value')
    }
    const parts = node.items.map((item) => textOf(key, item as ParsedNode))
    return parts.join(node.items.some(isSeq) || parts.some((part) => part.includes(',')) ? '|' : ',')
  }
  const add = (prefix: string, node: ParsedNode | null): void => {
    if (!isMap(node)) throw new InputError(`${path}:${lineOf(node)}`, show(node?.toJSON()), 'keys with values')
    for (const { key: name, value } of node.items) {
      const key = prefix + String(name)
      if (isMap(value)) add(`${key}.`, value)
      else if (found.has(key)) throw new InputError(`${path}:${lineOf(name)}, ${key}`, 'a value twice', 'one value')
      else found.set(key, { text: textOf(key, value), line: lineOf(name) })
    }
  }
  if (document.contents !== null) add('', document.contents)
  return found
}

/** Dotted keys as nested mappings. */
export function nestKeys(values: ReadonlyMap<string, ConfigValue>): object {
  const nested: Record<string, unknown> = {}
  for (const [key, value] of values) {
    const parts = key.split('.')
    const last = parts.pop()!
    let inside = nested
    for (const part of parts) {
      inside[part] ??= {}
      inside = inside[part] as Record<string, unknown>
    }
    inside[last] = value
  }
  return nested
}

/** Keys with values as YAML for `readConfigFile`, each list on one line. */
export async function writeConfigText(values: object): Promise<string> {
  const { Document: YamlDocument, isSeq, visit } = await import('yaml')
  const document = new YamlDocument(values)
  visit(document, {
    Seq(_, node) {
      if (isSeq(node)) node.flow = true
    },
  })
  return document.toString({ lineWidth: 0, flowCollectionPadding: false })
}
