/** Finds a hub dataset's files as the `datasets` library does: by the README's `configs`, or by file names. */
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import { download, type HubOptions, type Listing } from '../hub.ts'

/** Which split of a hub dataset to read, and how to download it. */
export interface SplitOptions extends HubOptions {
  /** Default `train`. */
  readonly split?: string
  /** A configuration of the README, or a folder; default the README's default or only one. */
  readonly subset?: string
}

/** File endings of supported formats. */
export const DATASET_ENDINGS = ['jsonl', 'ndjson', 'json', 'arrow', 'feather', 'parquet'] as const

/** Files beside the data that are not data. */
const NO_DATA = ['config.json', 'dataset_info.json', 'dataset_infos.json', 'dataset_dict.json', 'state.json']

/** Words in file and folder names that mean a split. */
const SPLIT_WORDS: Readonly<Record<string, readonly string[]>> = {
  train: ['train', 'training'],
  validation: ['validation', 'valid', 'dev', 'val'],
  test: ['test', 'testing', 'eval', 'evaluation'],
}

/**
 * The files of a split of a hub dataset, in order. Files that are not in the cache are downloaded, as with
 * `downloadModel`. For a dataset made by a script, the revision `refs/convert/parquet` has its rows, one folder per
 * subset.
 * @throws InputError for an unknown subset or split, or unsupported files, and as `downloadModel` does.
 * @example await downloadDataset('openai/gsm8k', { subset: 'main', split: 'test' })
 */
export async function downloadDataset(id: string, options: SplitOptions = {}): Promise<string[]> {
  checkGiven('id of downloadDataset', id, 'a text')
  const { split = 'train', subset, ...hub } = options
  const part = `${subset ?? ''}/${split}`
  const { folder, paths } = await download('dataset', id, part, hub, async (listing) => filesOf(listing, subset, split))
  return paths.map((path) => `${folder}/${path}`)
}

/** The ending of a path in lower case; '' without one. */
export function endingOf(path: string): string {
  return /\.([^./\\]+)$/.exec(path)?.[1]?.toLowerCase() ?? ''
}

function filesOf(listing: Listing, subset: string | undefined, split: string): string[] {
  const { subject } = listing
  const splits = splitsOf(listing, subset)
  const files = splits.get(split)
  if (files === undefined) throw unknownWord(`${subject}, split`, split, [...splits.keys()])
  const endings = new Set(files.map(endingOf))
  const unread = [...endings].find((ending) => !isRead(ending))
  if (unread !== undefined || endings.size !== 1) {
    const got = endings.size === 0 ? 'no file' : `files that end in ${[...endings].map((e) => `.${e}`).join(', ')}`
    const expected = `files of one of ${DATASET_ENDINGS.map((ending) => `.${ending}`).join(', ')}`
    throw new InputError(`${subject}, split ${split}`, got, `${expected}; or the revision refs/convert/parquet`)
  }
  return files
}

function isRead(ending: string): boolean {
  return (DATASET_ENDINGS as readonly string[]).includes(ending)
}

function splitsOf({ subject, about, paths }: Listing, subset: string | undefined): ReadonlyMap<string, string[]> {
  const { configs } = (about.cardData ?? {}) as { configs?: unknown }
  const place = `${subject}, configs of the README`
  if (!Array.isArray(configs) || configs.length === 0) return byName(subject, below(paths, subset))
  const named = new Map(configs.map((config) => [String(config?.config_name), config as Record<string, unknown>]))
  const only = named.size === 1 ? [...named.keys()][0] : undefined
  const standard = configs.find((config) => config?.default === true)?.config_name
  const name = subset ?? standard ?? (named.has('default') ? 'default' : only)
  if (name === undefined) throw new InputError(`${subject}, subset`, 'none', `one of ${[...named.keys()].join(', ')}`)
  const config = named.get(name)
  if (config === undefined) throw unknownWord(`${subject}, subset`, name, [...named.keys()])
  const { data_files: dataFiles, data_dir: folder } = config
  if (dataFiles == null) {
    if (folder != null && typeof folder !== 'string') throw new InputError(place, show(folder), 'a folder as data_dir')
    return byName(subject, below(paths, folder ?? undefined))
  }
  const entries = Array.isArray(dataFiles) ? dataFiles : [dataFiles]
  const splits = new Map<string, string[]>()
  for (const entry of entries) {
    const { split, path } = typeof entry === 'string' ? { split: 'train', path: entry } : (entry ?? {})
    const globs: unknown[] = Array.isArray(path) ? path : [path]
    if (typeof split !== 'string' || globs.some((glob) => typeof glob !== 'string')) {
      throw new InputError(place, show(entry), 'data_files with split and path')
    }
    const found = (globs as string[]).flatMap((glob) => paths.filter((each) => patternOf(glob).test(each)))
    splits.set(split, [...new Set([...(splits.get(split) ?? []), ...found])])
  }
  return splits
}

function below(paths: readonly string[], folder: string | undefined): string[] {
  if (folder === undefined) return [...paths]
  const prefix = `${folder.replace(/^\.\//, '').replace(/\/$/, '')}/`
  return paths.filter((path) => path.startsWith(prefix))
}

/** The splits that files and folders are named after. Without such names everything is `train`. */
function byName(subject: string, paths: readonly string[]): ReadonlyMap<string, string[]> {
  const data = paths.filter((path) => {
    const names = path.split('/')
    return isRead(endingOf(path)) && !NO_DATA.includes(names.at(-1)!) && !names.some((name) => /^[._]/.test(name))
  })
  if (data.length === 0) {
    const expected = `some of ${DATASET_ENDINGS.map((ending) => `.${ending}`).join(', ')}`
    throw new InputError(subject, `the files ${show(paths)}`, `${expected}; or the revision refs/convert/parquet`)
  }
  const splits = new Map<string, string[]>()
  const add = (split: string, path: string) => splits.set(split, [...(splits.get(split) ?? []), path])
  for (const path of data) {
    const shard = /(?:^|\/)data\/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*$/.exec(path)
    if (shard) add(shard[1]!, path)
  }
  if (splits.size > 0) return splits
  for (const path of data) {
    const split = Object.keys(SPLIT_WORDS).find((name) =>
      new RegExp(`(?:^|[-._ /0-9])(?:${SPLIT_WORDS[name]!.join('|')})(?:$|[-._ /0-9])`).test(path),
    )
    if (split !== undefined) add(split, path)
  }
  return splits.size > 0 ? splits : new Map([['train', data]])
}

/** A path pattern as in READMEs: `*` and `?` within a name, `**` across folders, `[…]` one of these letters. */
function patternOf(glob: string): RegExp {
  const parts = glob.replace(/^\.\//, '').split(/(\*\*\/|\*\*|\*|\?|\[[^\]]+\])/)
  const source = parts.map((part) => {
    if (part === '**/') return '(?:.*/)?'
    if (part === '**') return '.*'
    if (part === '*') return '[^/]*'
    if (part === '?') return '[^/]'
    if (/^\[.+\]$/.test(part)) return part.replace(/^\[!/, '[^').replaceAll('\\', '\\\\')
    return part.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')
  })
  return new RegExp(`^${source.join('')}$`)
}
