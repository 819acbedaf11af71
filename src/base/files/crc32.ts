/** CRC-32 of any polynomial: zip files have one, TensorFlow's records another. */

/** The table of `crc32`. `polynomial`: with its bits reversed. */
export function crcTable(polynomial: number): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, byte) => {
    let rest = byte
    for (let bit = 0; bit < 8; bit++) rest = rest & 1 ? (rest >>> 1) ^ polynomial : rest >>> 1
    return rest
  })
}

export function crc32(bytes: Uint8Array, table: Uint32Array): number {
  let crc = 0xffffffff
  for (let i = 0; i < bytes.length; i++) crc = table[(crc ^ bytes[i]!) & 0xff]! ^ (crc >>> 8)
  return ~crc >>> 0
}
