/** The files that a page keeps in memory, for downloads and uploads. `writeArrow`, `exportPolicy` and `trainer.save` write them. */
import { checkGiven } from '../errors.ts'
import { disk } from './disk.ts'
import { makeFolder, readWhole, writeWhole } from './files.ts'
import { dirname, join } from './path.ts'

/** The paths of all files below a folder. @throws InputError if there is no such folder. */
export async function listFiles(folder: string): Promise<string[]> {
  checkGiven('folder of listFiles', folder, 'a text')
  const inside = await Promise.all(
    (await disk.list(folder)).map(async (name) => {
      const path = join(folder, name)
      return (await disk.isFolder(path)) ? listFiles(path) : [path]
    }),
  )
  return inside.flat()
}

/** A file's bytes. @throws InputError if there is none. */
export function readFile(path: string): Promise<Uint8Array> {
  checkGiven('path of readFile', path, 'a text')
  return readWhole(path, 'a file that this page has written')
}

/** Writes a file and creates the folders above it, such as a file of a checkpoint from another machine. */
export async function writeFile(path: string, bytes: Uint8Array): Promise<void> {
  checkGiven('path of writeFile', path, 'a text')
  await makeFolder(dirname(path))
  await writeWhole(path, [bytes])
}
