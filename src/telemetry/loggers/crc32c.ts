/** CRC-32C (Castagnoli), as in TensorFlow's records. */
import { crc32, crcTable } from '../../base/files/crc32.ts'

const CASTAGNOLI = crcTable(0x82f63b78)

export function crc32c(bytes: Uint8Array): number {
  return crc32(bytes, CASTAGNOLI)
}

/** The checksum as stored in records: rotated by 15 bits, plus a constant, so that checksums of checksums remain useful. */
export function maskedCrc32c(bytes: Uint8Array): number {
  const crc = crc32c(bytes)
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0
}
