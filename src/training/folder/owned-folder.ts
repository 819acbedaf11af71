/** The folder in which a program's trainer keeps its checkpoints, once it is used. */
import { InputError } from '../../base/errors.ts'
import { cannotWrite, makeFolder } from '../../base/files/files.ts'
import { tell } from '../../base/host.ts'
import { listCheckpoints, type Manifest, readManifest } from './checkpoint.ts'
import { firstFree, TakenError } from './free-folder.ts'
import type { IfExists } from './if-exists.ts'
import { Ownership } from './owner.ts'
import { emptyRun, holdsRun, type RunRecord, readConfig, runRecordOf } from './run-record.ts'

/** The folder's view of a trainer. Each comparison throws an InputError that names the first difference. */
export interface FolderUser {
  /** The number of a checkpoint written now. */
  readonly number: number
  compareCheckpoint(subject: string, manifest: Manifest): void
  compareRun(subject: string, run: RunRecord): void
  /** Restores the newest checkpoint of a folder; undefined if it is too late for that. */
  readonly restore: ((folder: string) => Promise<unknown>) | undefined
}

/** The folder of a program's trainer, owned from the first update or checkpoint until it is closed. */
export class OwnedFolder {
  /** The requested folder, until another one is taken. */
  path: string
  readonly #given: string
  readonly #ifExists: IfExists
  #ownership: Ownership | undefined

  constructor(path: string, ifExists: IfExists) {
    this.path = path
    this.#given = path
    this.#ifExists = ifExists
  }

  /**
   * Checks that the folder can take the trainer's checkpoints, or takes another one and reports it on standard error.
   * @throws InputError if it cannot be written; and, unless folders are numbered, if it is in use, or has another
   * training or a later checkpoint of this one.
   */
  async settle(user: FolderUser): Promise<void> {
    const take = async (requested: string): Promise<void> => {
      const path = requested === this.#given ? this.path : requested // Which may be numbered already.
      await this.#take(path, user)
      this.path = path
    }
    const { moved } = await firstFree(this.#given, this.#ifExists, take, (value) => `ifExists: '${value}'`)
    if (moved !== null) tell(moved)
  }

  async #take(path: string, user: FolderUser): Promise<void> {
    await makeFolder(path).catch((cause) => {
      throw cannotWrite(path, cause)
    })
    const isOurs = this.#ownership !== undefined && this.path === path && !this.#ownership.isReleased
    if (!isOurs) {
      if (this.#ifExists === 'number' && user.number === 0 && (await Ownership.isHere(path))) {
        throw new TakenError('folder', path, 'is in use by another training of this process')
      }
      const ownership = await Ownership.take(path)
      this.release()
      this.#ownership = ownership
    }
    try {
      await this.#look(path, user, isOurs || user.number > 0)
    } catch (error) {
      if (!isOurs) await this.#ownership?.release()
      throw error
    }
  }

  /** Checks the folder's content as its owner; `isBegun`: this training may have written it. */
  async #look(path: string, user: FolderUser, isBegun: boolean): Promise<void> {
    const newest = (await listCheckpoints(path)).at(-1)
    const isRun = await holdsRun(path)
    if (newest === undefined && !isRun) return
    if (!isBegun) {
      if (this.#ifExists === 'replace') return emptyRun(path)
      if (this.#ifExists === 'number') throw new TakenError('folder', path, `holds a ${isRun ? 'run' : 'training'}`)
    }
    try {
      if (isRun) user.compareRun(`run ${path}`, runRecordOf(await readConfig(path)))
      if (newest === undefined) return
      const read = await readManifest(path, newest)
      user.compareCheckpoint(`checkpoint ${read.path}`, read.manifest)
    } catch (error) {
      if (this.#ifExists === 'replace') return emptyRun(path)
      if (this.#ifExists !== 'number' || !(error instanceof InputError)) throw error
      throw new TakenError('folder', path, 'holds another training')
    }
    if (newest <= user.number) return
    if (this.#ifExists === 'replace') return emptyRun(path)
    if (this.#ifExists === 'resume' && !isBegun && user.restore) return void (await user.restore(path))
    const why = `holds the checkpoint ${newest} of this training, which stands at ${user.number}`
    const expected = "a trainer that continues from there (trainer.restore(), or ifExists: 'resume'), or a new folder"
    throw new TakenError('folder', path, why, expected)
  }

  /** Releases the folder. */
  release(): void {
    void this.#ownership?.release()
    this.#ownership = undefined
  }
}
