// Reads which symbols a shared library exports, and for which processor it is: of ELF (Linux), Mach-O (macOS) and PE (Windows), 64
// bits each. So an addon can be looked at on machines that cannot load it.

/** What formats call Node's architectures. */
const PROCESSORS = {
  elf: { 62: 'x64', 183: 'arm64' },
  macho: { 16777223: 'x64', 16777228: 'arm64' },
  pe: { 34404: 'x64', 43620: 'arm64' },
}

/**
 * @param {Buffer} bytes a shared library
 * @returns {{ os: string, cpu: string | undefined, names: string[], signed: boolean }} `os` and `cpu` by Node's names; `signed`:
 *   it holds a signature, without which macOS on ARM loads nothing
 */
export function readExports(bytes) {
  if (bytes.readUInt32BE(0) === 0x7f454c46) return { os: 'linux', signed: false, ...readElf(bytes) }
  if (bytes.readUInt32LE(0) === 0xfeedfacf) return { os: 'darwin', ...readMachO(bytes) }
  if (bytes.toString('latin1', 0, 2) === 'MZ') return { os: 'win32', signed: false, ...readPe(bytes) }
  throw new Error(
    `shared library: got bytes that begin with ${bytes.toString('hex', 0, 4)}, expected ELF, Mach-O or PE`,
  )
}

/** Text up to a zero byte. */
const textAt = (bytes, at) => bytes.toString('latin1', at, bytes.indexOf(0, at))
const long = (bytes, at) => Number(bytes.readBigUInt64LE(at))

function readElf(bytes) {
  const [sections, size, count] = [long(bytes, 40), bytes.readUInt16LE(58), bytes.readUInt16LE(60)]
  const section = (i) => {
    const at = sections + i * size
    const [type, link] = [bytes.readUInt32LE(at + 4), bytes.readUInt32LE(at + 40)]
    return { type, link, from: long(bytes, at + 24), length: long(bytes, at + 32) }
  }
  const dynamic = Array.from({ length: count }, (_, i) => section(i)).find(({ type }) => type === 11)
  const texts = section(dynamic.link).from
  const names = []
  for (let at = dynamic.from; at < dynamic.from + dynamic.length; at += 24) {
    const isDefined = bytes.readUInt16LE(at + 6) !== 0
    if (isDefined && bytes[at + 4] >> 4 !== 0) names.push(textAt(bytes, texts + bytes.readUInt32LE(at)))
  }
  return { cpu: PROCESSORS.elf[bytes.readUInt16LE(18)], names }
}

/** Commands of a Mach-O file that matter here; the loader looks for exports in a trie, not among the symbols. */
const SIGNATURE = 0x1d
const EXPORTS_IN = { 34: 40, 2147483682: 40, 2147483699: 8 }

function readMachO(bytes) {
  const names = []
  let signed = false
  for (let i = 0, at = 32; i < bytes.readUInt32LE(16); i++, at += bytes.readUInt32LE(at + 4)) {
    const command = bytes.readUInt32LE(at)
    if (command === SIGNATURE) signed = true
    const place = EXPORTS_IN[command]
    if (place === undefined) continue
    const [from, size] = [bytes.readUInt32LE(at + place), bytes.readUInt32LE(at + place + 4)]
    if (size > 0) names.push(...namesInTrie(bytes.subarray(from, from + size)))
  }
  return { cpu: PROCESSORS.macho[bytes.readUInt32LE(4)], names, signed }
}

/** The names in a trie of exports, without the underscore before each, below the node at `at`. */
function namesInTrie(trie, at = 0, name = '') {
  const [size, terminal] = readLeb128(trie, at)
  const names = size > 0 ? [name.replace(/^_/, '')] : []
  let edge = terminal + size + 1
  for (let left = trie[terminal + size]; left > 0; left--) {
    const text = textAt(trie, edge)
    const [child, next] = readLeb128(trie, edge + text.length + 1)
    names.push(...namesInTrie(trie, child, name + text))
    edge = next
  }
  return names
}

/** A whole number of seven bits a byte, the lowest first; and where the next begins. */
function readLeb128(bytes, at) {
  let value = 0
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[at++]
    value |= (byte & 0x7f) << shift
    if (byte < 0x80) return [value, at]
  }
}

function readPe(bytes) {
  const head = bytes.readUInt32LE(60)
  const [count, optional] = [bytes.readUInt16LE(head + 6), bytes.readUInt16LE(head + 20)]
  const sections = Array.from({ length: count }, (_, i) => head + 24 + optional + 40 * i)
  /** Where an address of the loaded library lies in the file. */
  const place = (address) => {
    const at = sections.find((section) => {
      const from = bytes.readUInt32LE(section + 12)
      return address >= from && address < from + bytes.readUInt32LE(section + 8)
    })
    return address - bytes.readUInt32LE(at + 12) + bytes.readUInt32LE(at + 20)
  }
  const table = place(bytes.readUInt32LE(head + 24 + 112))
  const texts = place(bytes.readUInt32LE(table + 32))
  const names = Array.from({ length: bytes.readUInt32LE(table + 24) }, (_, i) => {
    return textAt(bytes, place(bytes.readUInt32LE(texts + 4 * i)))
  })
  return { cpu: PROCESSORS.pe[bytes.readUInt16LE(head + 4)], names }
}
