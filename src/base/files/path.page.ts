/** The body of `path.ts` in a page, whose files have paths as on Linux. */
import { InputError } from '../errors.ts'
import type * as node from './path.ts'

export const sep: typeof node.sep = '/'

export const isAbsolute: typeof node.isAbsolute = (path) => path.startsWith('/')

export const join: typeof node.join = (...parts) => {
  const path = parts.filter((part) => part !== '').join('/')
  const plain = simplified(path)
  return plain === '' ? '.' : plain + (path.endsWith('/') && plain !== '/' ? '/' : '')
}

export const resolve: typeof node.resolve = (...parts) => {
  const from = parts.findLastIndex(isAbsolute)
  return simplified(`/${parts.slice(Math.max(from, 0)).join('/')}`)
}

export const basename: typeof node.basename = (path, ending = '') => {
  const name = /([^/]*)\/*$/.exec(path)![1]!
  return name !== ending && name.endsWith(ending) ? name.slice(0, name.length - ending.length) : name
}

export const dirname: typeof node.dirname = (path) => {
  const [, folder = ''] = /^(.*?)\/*[^/]+\/*$/.exec(path) ?? []
  return folder !== '' ? folder : path.startsWith('/') ? '/' : '.'
}

export const extname: typeof node.extname = (path) => /[^/](\.[^./]*)\/*$/.exec(path)?.[1] ?? ''

export const relative: typeof node.relative = (from, to) => {
  const [here, there] = [from, to].map((path) => resolve(path).split('/').filter(Boolean)) as [string[], string[]]
  let same = 0
  while (same < here.length && same < there.length && here[same] === there[same]) same++
  return [...here.slice(same).map(() => '..'), ...there.slice(same)].join('/')
}

export const fileURLToPath: typeof node.fileURLToPath = (url) => decodeURIComponent(new URL(url).pathname)

export const pathToFileURL: typeof node.pathToFileURL = (path) => {
  throw new InputError('module', `${path}, a path`, 'a name that comes with Colonnade: a page runs no modules by path')
}

/** The path without empty parts, without `.`, and without each name that `..` follows. */
function simplified(path: string): string {
  const isRooted = path.startsWith('/')
  const kept: string[] = []
  for (const part of path.split('/')) {
    if (part === '' || part === '.') continue
    if (part !== '..') kept.push(part)
    else if (kept.length > 0 && kept.at(-1) !== '..') kept.pop()
    else if (!isRooted) kept.push(part)
  }
  return (isRooted ? '/' : '') + kept.join('/')
}
