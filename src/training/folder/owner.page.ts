/** The body of `owner.ts` in a page, whose files no other process has. */
import { makeFolder } from '../../base/files/files.ts'
import { resolve } from '../../base/files/path.ts'
import { TakenError } from './free-folder.ts'
import type * as node from './owner.ts'

export const RUN_FILES: typeof node.RUN_FILES = [
  ...[
    'config.json',
    'metrics.jsonl',
    'metrics.index',
    'notes.json',
    'summary.json',
    'learning-curve.svg',
    'trace.json',
    'run.log',
  ],
]
export const RUN_FOLDERS: typeof node.RUN_FOLDERS = ['checkpoints', 'rollouts', 'trajectories', 'model', 'adapter']

/** A page has no claims of other processes, and a write into its memory is never cut off. */
export const isClaim: typeof node.isClaim = () => false
export const isTemporary: typeof node.isTemporary = () => false

const owned = new Map<string, Ownership>()

export class Ownership {
  isBusy = false
  isReleased = false
  readonly #place: string

  private constructor(place: string) {
    this.#place = place
  }

  static async take(folder: string): Promise<Ownership> {
    const place = resolve(folder)
    const before = owned.get(place)
    if (before?.isBusy)
      throw new TakenError('folder', folder, 'is in use by this page', 'a folder without a running training')
    await before?.release()
    const ownership = new Ownership(place)
    owned.set(place, ownership)
    return ownership
  }

  static async isHere(folder: string): Promise<boolean> {
    return owned.has(resolve(folder))
  }

  async release(): Promise<void> {
    this.isReleased = true
    if (owned.get(this.#place) === this) owned.delete(this.#place)
  }
}

export const asOwner: typeof node.asOwner = async (folder, action) => {
  await makeFolder(folder)
  return action()
}
