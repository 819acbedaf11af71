/** Reads Parquet files in a worker thread, one row group at a time. */
import { stat } from 'node:fs/promises'
import zlib from 'node:zlib'
import type { AsyncBuffer, FileMetaData } from 'hyparquet'
import { serveReads } from '../../base/threads/guarded.ts'

const { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } = await import('hyparquet')

/** A read request. Without a row group it asks for the number of rows in each. */
interface Reading {
  readonly rows?: readonly [from: number, to: number]
}

/** The file of the last request, reused while it is unchanged. */
let open: { readonly key: string; readonly file: AsyncBuffer; readonly metadata: FileMetaData } | undefined

serveReads<Reading>(
  async ({ path, rows }) => {
    const { mtimeMs, size } = await stat(path)
    const key = `${path} ${mtimeMs} ${size}`
    if (open?.key !== key) {
      const file = await asyncBufferFromFile(path)
      open = { key, file, metadata: await parquetMetadataAsync(file) }
    }
    const { file, metadata } = open
    if (rows === undefined) {
      const counts = metadata.row_groups.map(({ num_rows }) => Number(num_rows))
      const wrong = counts.find((count) => !(Number.isSafeInteger(count) && count >= 0))
      if (wrong !== undefined) throw new Error(`a row group of ${wrong} rows`)
      return { value: counts }
    }
    const [rowStart, rowEnd] = rows
    const value = await parquetReadObjects({ file, metadata, compressors, rowStart, rowEnd })
    if (value.length === rowEnd - rowStart) return { value }
    throw new Error(`${value.length} rows from ${rowStart} on, where its metadata says ${rowEnd - rowStart}`)
  },
  { leavesWork: true },
) // Columns are read in parallel: if one fails, others continue.

const { zstdDecompressSync } = zlib as {
  zstdDecompressSync?: (input: Uint8Array, options: { maxOutputLength: number }) => Uint8Array
}

/** Compressions that Node has and hyparquet lacks, limited to the announced length. zstd needs Node 22.15. */
const compressors = {
  GZIP: (input: Uint8Array, length: number) => zlib.gunzipSync(input, { maxOutputLength: length + 1 }),
  BROTLI: (input: Uint8Array, length: number) => zlib.brotliDecompressSync(input, { maxOutputLength: length + 1 }),
  ...(zstdDecompressSync === undefined
    ? {}
    : { ZSTD: (input: Uint8Array, length: number) => zstdDecompressSync(input, { maxOutputLength: length + 1 }) }),
}
