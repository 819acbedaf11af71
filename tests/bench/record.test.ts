import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { type RoomRecord, readRecords, tableRooms, withRecords } from '../../bench/record.ts'
import { codeOf, staleRooms } from '../../bench/stale.ts'

const markdown = readFileSync(new URL('../../docs/bench.md', import.meta.url), 'utf8')
const records = readRecords()

test('every table of docs/bench.md is written from a record, and says what the record says', () => {
  expect(withRecords(markdown, records)).toBe(markdown)
  const rest = tableRooms.reduce((text, room) => {
    const [begin, end] = [`<!-- record ${room} -->`, `<!-- end ${room} -->`]
    expect(text).toContain(begin)
    return text.slice(0, text.indexOf(begin)) + text.slice(text.indexOf(end))
  }, markdown)
  expect(rest.match(/^\|.*/gm)).toBeNull()
})

test('a record tells its commit, date, load and machine', () => {
  for (const { room, commit, date, load, node, cpu, cores, kernels, figures } of records) {
    expect(tableRooms).toContain(room)
    expect({ commit, date, node }).toEqual({
      commit: expect.stringMatching(/^[0-9a-f]{10}$/),
      date: expect.stringMatching(/^\d{4}-\d\d-\d\d$/),
      node: expect.stringMatching(/^v\d+\.\d+\.\d+$/),
    })
    expect([...load, cores].every(Number.isFinite)).toBe(true)
    expect([cpu, kernels].every((word) => word.length > 0)).toBe(true)
    expect(figures.length).toBeGreaterThan(0)
  }
})

const record: RoomRecord = {
  ...{ room: 'kernels', commit: '0123456789', date: '2026-11-24', load: [0.1, 1.9] },
  ...{ colonnade: '0.1.0', node: 'v20.20.2', cpu: 'a processor', cores: 2, kernels: 'native' },
  figures: [{ name: 'gae', unit: 'rows/s', median: 3, min: 2, max: 4, repeats: 7 }],
  skipped: ['torch: it is not here'],
}

test("a record's section has its figures, its load and what was left out", () => {
  const written = withRecords('before\n<!-- record kernels -->\nan old table\n<!-- end kernels -->\nafter\n', [record])
  expect(written).toMatch(/^before\n<!-- record kernels -->\n.*commit 0123456789.*load 0\.1 before, 1\.9 after/)
  expect(written).toContain('| gae | 3 rows/s | 2–4 (noisy) |  |')
  expect(written).toContain('- Left out: torch: it is not here\n<!-- end kernels -->\nafter\n')
  expect(written).not.toContain('an old table')
  expect(() => withRecords('no marks', [record])).toThrow('expected <!-- record kernels -->')
})

test('a record is stale once code that it measured has changed, and a table without one is named', () => {
  expect(staleRooms([record], () => [], ['kernels'])).toEqual([])
  expect(staleRooms([record], () => [], ['kernels', 'peers'])).toEqual(['peers: no record'])
  expect(staleRooms([record], () => ['src/kernels'], ['kernels'])).toEqual([
    'kernels: measured at 0123456789; since then src/kernels changed',
  ])
})

test('comments and types are no code of a source file, values and names are', () => {
  const code = (text: string) => codeOf('src/kernels/gae.ts', text)
  expect(code('/** A row. */\nexport interface Row { readonly n: number }\n')).toBe('')
  expect(code('export const a: number = 1 // One.')).toBe(code('export const a = 1'))
  expect(code('export const a = 1')).not.toBe(code('export const a = 2'))
})
