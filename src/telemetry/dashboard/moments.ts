/** What a run's folder has of single updates: rows, conversations and pictures, for marks beside the curves. */
import { listFolder } from '../../base/files/files.ts'
import { type Points, valueAt } from '../curves.ts'
import { listArrowFiles } from './arrow-rows.ts'

/** The picture that `colonnade replay` writes of the newest checkpoint, or with the number of an earlier one. */
const PICTURE = /^replay(?:-(\d+))?\.gif$/

/** Something that was made at an update. */
export interface Moment {
  readonly kind: 'rows' | 'conversations' | 'picture'
  readonly update: number
  /** Path in the run's folder. */
  readonly file: string
  /** Its place on the x axis; null if the curve has none. */
  readonly x: number | null
}

export const isPicture = (name: string): boolean => PICTURE.test(name)

/** The moments of a run's folder in order of updates; `axis`: the x axis over updates. @throws InputError if one of its folders is a link. */
export async function listMoments(folder: string, axis: Points): Promise<Moment[]> {
  const files = (await listArrowFiles(folder)).map(({ path }) => path)
  const pictures = (await listFolder(folder)).filter(isPicture)
  const found = [...files, ...pictures].flatMap((file): Moment[] => {
    const number = /(\d+)\.(?:arrow|gif)$/.exec(file)?.[1]
    if (number === undefined) return []
    const kind = file.startsWith('rollouts/') ? 'rows' : file.startsWith('trajectories/') ? 'conversations' : 'picture'
    return [{ kind, update: Number(number), file, x: placeOf(axis, Number(number)) }]
  })
  return found.sort((a, b) => a.update - b.update)
}

/** The value at an update: at the nearest end beyond the curve, whose points may be means of several updates. */
function placeOf(axis: Points, update: number): number | null {
  if (axis.x.length === 0) return null
  return valueAt(axis, Math.min(Math.max(update, axis.x[0]!), axis.x.at(-1)!))
}
