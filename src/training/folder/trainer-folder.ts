/** The folder of a program's trainer. Code for files is loaded at its first use, so trainers without a folder load none of it. */
import type { IfExists } from './if-exists.ts'
import type { FolderUser, OwnedFolder } from './owned-folder.ts'

/** The folder of a program's trainer, owned from the first update or checkpoint until it is closed. */
export class TrainerFolder {
  readonly #given: string
  readonly #ifExists: IfExists
  #owned: OwnedFolder | undefined

  constructor(path: string, ifExists: IfExists) {
    this.#given = path
    this.#ifExists = ifExists
  }

  /** The requested folder, until another one is taken. */
  get path(): string {
    return this.#owned?.path ?? this.#given
  }

  /** As `OwnedFolder.settle`. */
  async settle(user: FolderUser): Promise<void> {
    const { OwnedFolder } = await import('./owned-folder.ts')
    this.#owned ??= new OwnedFolder(this.#given, this.#ifExists)
    await this.#owned.settle(user)
  }

  /** Lets others take the folder. */
  release(): void {
    this.#owned?.release()
  }
}
