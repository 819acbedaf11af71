/** Converts compiled kernels, which import a shared memory, for a memory that is not shared. */

const IMPORT_SECTION = 2

/** The module with an unshared memory: its one import has other flags and no maximum number of pages. */
export function unshared(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  for (let at = 8; ; ) {
    const from = at
    const id = bytes[at++]
    let size = 0
    for (let shift = 0, byte = 128; byte >= 128; shift += 7) {
      byte = bytes[at++]!
      size |= (byte & 127) << shift
    }
    const end = at + size
    if (id === IMPORT_SECTION) {
      // The import: the names env and memory, kind 2, flags, and the minimum and maximum numbers of pages, in one and three bytes.
      const head = bytes.subarray(at, end - 5)
      const parts = [bytes.subarray(0, from), [id, head.length + 2], head, [0, bytes[end - 4]!], bytes.subarray(end)]
      const module = new Uint8Array(bytes.length - 3)
      for (let to = 0, i = 0; i < parts.length; to += parts[i++]!.length) module.set(parts[i]!, to)
      return module
    }
    at = end
  }
}
