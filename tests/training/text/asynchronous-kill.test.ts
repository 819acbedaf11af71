/** An asynchronous training that is killed. `npm run test:tiers` kills a few times, `npm run faults` 50 times. */
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { start } from '../../support/command.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { seeded } from '../../support/tiers.ts'

const random = seeded(1)

const KILLS = import.meta.env.MODE === 'faults' ? 50 : 4
const script = fileURLToPath(new URL('../../support/asynchronous-run.mjs', import.meta.url))

interface Line {
  readonly what: 'restored' | 'learned' | 'saved'
  readonly update: number
  readonly underWay: number
  readonly begun: number
  readonly hash: string
  readonly staleness: number
  /** Group, member and prompt of each row. */
  readonly rows: readonly (readonly [number, number, number])[]
}

test('goes on after kill -9 at random moments: nothing saved is lost, no prompt is left out or comes twice, conversations go on', {
  timeout: 15 * 60_000,
}, async () => {
  let [killed, underWay] = [0, 0]
  while (killed < KILLS) {
    const folder = await temporaryFolder()
    /** Of each update what was learned last: an update after the newest checkpoint is made again. */
    const learned = new Map<number, Line['rows']>()
    let saved: Line | null = null
    for (let isDone = false; !isDone; ) {
      const child = start(process.execPath, [script, folder])
      let isOver = false
      void child.ended.then(() => {
        isOver = true
      })
      await Promise.race([child.printed('"what"'), child.ended])
      if (killed < KILLS) {
        await new Promise((resolve) => setTimeout(resolve, random() * 120))
        if (!isOver && child.process.kill('SIGKILL')) killed++
      }
      const { code, stdout, stderr } = await child.ended
      expect([0, null], stderr).toContain(code)
      isDone = code === 0
      const whole = stdout.slice(0, stdout.lastIndexOf('\n') + 1)
      const lines = whole
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Line)
      for (const line of lines) {
        if (line.what === 'restored' && saved !== null) {
          // The newest checkpoint, or one that was whole when its writer was killed.
          expect(line.update).toBeGreaterThanOrEqual(saved.update)
          expect(line.begun).toBeGreaterThanOrEqual(saved.begun)
          if (line.begun === saved.begun && line.underWay === saved.underWay) expect(line.hash).toBe(saved.hash)
          underWay += line.underWay
        }
        if (line.what === 'saved') saved = line
        if (line.what === 'learned') {
          expect(line.staleness).toBeLessThanOrEqual(2)
          learned.set(line.update, line.rows)
        }
      }
    }
    expect([...learned.keys()].sort()).toEqual([1, 2, 3, 4, 5, 6])
    const rows = [...learned].sort(([a], [b]) => a - b).map(([, each]) => each.map(String).sort())
    // Whole groups in the order in which they begin, whose prompts are those of an epoch each, in any order.
    const order = rows.flat().map((row) => row.split(',').map(Number))
    expect(order.map(([group, member]) => 2 * group! + member!).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 24 }, (_, i) => i),
    )
    for (const [update, each] of rows.entries()) {
      for (const row of each) expect(Math.floor(Number(row.split(',')[0]) / 2)).toBe(update)
    }
    const prompts = Array.from({ length: 12 }, (_, group) => order.find(([each]) => each === group)![2]!)
    for (const epoch of [0, 1]) expect(prompts.slice(5 * epoch, 5 * epoch + 5).sort()).toEqual([0, 1, 2, 3, 4])
    for (const [group, , prompt] of order) expect(prompt).toBe(prompts[group!])
  }
  expect(underWay, 'tokens of conversations that were under way').toBeGreaterThan(0)
})
