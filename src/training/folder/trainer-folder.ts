/** Where a trainer of a program keeps its checkpoints. */
import { InputError } from '../../base/errors.ts'
import { cannotWrite, makeFolder } from '../../base/files/files.ts'
import { listCheckpoints, type Manifest, readManifest } from './checkpoint.ts'
import { firstFree, type IfExists, numbered, TakenError, tellNumbered } from './if-exists.ts'
import { Ownership } from './owner.ts'
import { emptyRun, holdsRun, type RunRecord, readConfig, runRecordOf } from './run-folder.ts'

/** A trainer as its folder sees it. Each comparison throws an InputError that names the first difference. */
export interface FolderUser {
  /** The number that a checkpoint would have now. */
  readonly number: number
  compareCheckpoint(subject: string, manifest: Manifest): void
  compareRun(subject: string, run: RunRecord): void
  /** Takes up the newest checkpoint of a folder; undefined where it is too late for that. */
  readonly restore: ((folder: string) => Promise<unknown>) | undefined
}

/** The folder of a trainer of a program, which is this process's from the first update or checkpoint until the trainer is closed. */
export class TrainerFolder {
  /** The folder that was asked for, until another one is taken. */
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
   * Makes sure that the folder will take the trainer's checkpoints, or takes another one and says so on standard error.
   * @throws InputError if it cannot be written. Where folders are not numbered also if the folder is in use, or holds another
   * training or a checkpoint that this training has yet to come to.
   */
  async settle(user: FolderUser): Promise<void> {
    const folderOf = numbered(this.#given)
    const nextOf = (number: number) => (number === 1 ? this.path : folderOf(number))
    const free = await firstFree(nextOf, this.#ifExists, (path) => this.#take(path, user))
    this.path = free.path
    const told = tellNumbered(free, (value) => `ifExists: '${value}'`)
    if (told !== null) process.stderr.write(`colonnade: ${told}\n`)
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

  /** Looks at what the folder holds, as its owner; `isBegun` where this training may have written it. */
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
    const expected = "a trainer that goes on from there (trainer.restore(), or ifExists: 'resume'), or a new folder"
    throw new TakenError('folder', path, why, expected)
  }

  /** Somebody else may have the folder from now on. */
  release(): void {
    void this.#ownership?.release()
    this.#ownership = undefined
  }
}
