/** The page's table of runs and its link, without a browser. */
import { describe, expect, test } from 'vitest'
import { edited, sharedBy } from '../../../src/telemetry/dashboard/page/notes.ts'
import {
  cellOf,
  columnsOf,
  differentSettings,
  explainedBy,
  passes,
  rowsOf,
} from '../../../src/telemetry/dashboard/page/rows.ts'
import { linkOf, PLAIN, placesOf, queriesOf, type View, viewOf } from '../../../src/telemetry/dashboard/page/view.ts'
import type { ShownRun } from '../../../src/telemetry/dashboard/runs.ts'
import { explainedShare } from '../../../src/telemetry/explained.ts'

/** A run of a sweep: its group is all but the seed. */
function run(
  id: string,
  settings: Record<string, unknown>,
  last: Record<string, number>,
  others: Partial<ShownRun> = {},
) {
  const { seed: _, ...group } = settings
  return {
    ...{ id, folder: id, kind: 'episodes', environment: 'CartPole-v1', algorithm: 'ppo', status: 'complete', settings },
    ...{ group: JSON.stringify(group), lines: 10, isSkimmed: false, names: Object.keys(last), last },
    ...{ replayTime: null, fleetTime: null, notes: [], annotation: { note: '', tags: [] } },
    ...others,
  } as ShownRun
}

const sweep = [0.1, 0.01].flatMap((rate) =>
  [1, 2, 3].map((seed) =>
    run(
      `rate-${rate}/seed-${seed}`,
      { 'ppo.learningRate': rate, seed },
      { episodeReturn: 10 * seed + (rate === 0.1 ? 0 : 100) },
    ),
  ),
)
const other = run(
  'other',
  { 'ppo.learningRate': 0.1, seed: 1 },
  { reward: 1 },
  { environment: 'text', group: 'other', status: 'running', lines: 3 },
)
const all = [...sweep, other]
const view = (some: Partial<View> = {}): View => ({ ...PLAIN, ...some })
const names = (some: Partial<View>) => rowsOf(all, view(some)).map(({ name, runs }) => `${name} ${runs.length}`)

describe('notes and tags', () => {
  const annotated = sweep.map((each, i) => ({
    ...each,
    annotation: { note: i === 0 ? 'diverges late' : '', tags: i < 2 ? ['baseline'] : [] },
  }))

  test('are columns where a run has some, and are found by a filter', () => {
    expect([columnsOf(sweep, PLAIN).includes('tags'), columnsOf(annotated, PLAIN).slice(2, 4)]).toEqual([
      false,
      ['tags', 'note'],
    ])
    const found = (filter: string) => annotated.filter((each) => passes(each, filter)).map(({ id }) => id)
    expect(found('BASE')).toEqual(['rate-0.1/seed-1', 'rate-0.1/seed-2'])
    expect(found('tags=baseline diverges')).toEqual(['rate-0.1/seed-1'])
    expect(found('note~late')).toEqual(['rate-0.1/seed-1'])
    expect(cellOf(annotated.slice(0, 2), 'tags')).toEqual({ value: 'baseline' })
    expect(cellOf(annotated.slice(2), 'tags')).toBe(null)
  })

  test('of several runs are changed together, and what a person leaves as it is stays', () => {
    const all = [
      { note: 'one', tags: ['a', 'own', 'b'] },
      { note: 'two', tags: ['b', 'a'] },
    ]
    const before = sharedBy(all)
    expect(before).toEqual({ note: '', tags: ['a', 'b'] })
    expect(all.map((each) => edited(each, before, { note: '', tags: ['b', 'new'] }))).toEqual([
      { note: 'one', tags: ['own', 'b', 'new'] },
      { note: 'two', tags: ['b', 'new'] },
    ])
    expect(edited(all[0]!, sharedBy([all[0]!]), { note: '', tags: [] })).toEqual({ note: '', tags: [] })
  })
})

describe('rows', () => {
  test('fold seeds, runs or the values of a setting', () => {
    expect(names({})).toEqual(['rate-0.1 3', 'rate-0.01 3', 'other 1'])
    expect(names({ groupBy: 'runs' })).toHaveLength(7)
    expect(names({ groupBy: 'ppo.learningRate' })).toEqual([
      ...[
        'ppo.learningRate 0.1, CartPole-v1 3',
        'ppo.learningRate 0.01, CartPole-v1 3',
        'ppo.learningRate 0.1, text 1',
      ],
    ])
    expect(names({ groupBy: 'environment' })).toEqual(['environment CartPole-v1 6', 'environment text 1'])
    expect(names({ groupBy: 'ppo.learningRate', filter: 'rate' })[0]).toBe('ppo.learningRate 0.1 3')
  })

  test('are sorted by means, without a value last, pinned first', () => {
    expect(names({ sort: 'episodeReturn' })).toEqual(['rate-0.1 3', 'rate-0.01 3', 'other 1'])
    expect(names({ sort: '-episodeReturn' })).toEqual(['rate-0.01 3', 'rate-0.1 3', 'other 1'])
    expect([names({ sort: 'run' })[0], names({ sort: '-run' })[2]]).toEqual(['other 1', 'other 1'])
    expect(names({ sort: 'status' })[2]).toBe('other 1')
    expect(names({ pinned: new Set(['other']) })[0]).toBe('other 1')
    expect(names({ pinned: new Set([sweep[4]!.id]) })[0]).toBe('rate-0.01 3') // One of its seeds.
  })

  test.each([
    ['cartpole seed-2', 2],
    ['ppo.learningRate<=0.01', 3],
    ['ppo.learningRate!=0.01 status=complete', 3],
    ['episodeReturn>20', 4],
    ['episodeReturn>=20 episodeReturn<110', 2],
    ['run~seed-1', 2],
    ['environment~CARTPOLE', 6],
    ['environment=text', 1],
    ['updates<10', 1],
    ['nothing>1', 0],
    ['rate-0.01/seed', 3],
    ['=', 0],
    ['', 7],
  ])('pass the filter "%s": %i', (filter, count) => {
    expect(all.filter((each) => passes(each, filter))).toHaveLength(count)
  })

  test('are found by a name with an operator', () => {
    const named = run('lr=0.1/seed=1', { seed: 1 }, {})
    expect([passes(named, 'lr=0.1'), passes(named, 'lr=0.2'), passes(named, 'seed=1')]).toEqual([true, false, true])
  })

  test('have what is the same, or mean and deviation, or how many words', () => {
    expect(cellOf(sweep, 'environment')).toEqual({ value: 'CartPole-v1' })
    expect(cellOf(sweep.slice(0, 3), 'episodeReturn')).toEqual({ mean: 20, std: 10, count: 3 })
    expect(cellOf(all, 'status')).toEqual({ several: 2 })
    expect(cellOf(sweep, 'reward')).toBeNull()
  })

  test('show what differs, the seed aside, within an environment', () => {
    expect(differentSettings(sweep)).toEqual(['ppo.learningRate'])
    expect(differentSettings([sweep[0]!, other])).toEqual([])
    expect(columnsOf(sweep, PLAIN)).toEqual(['status', 'updates', 'episodeReturn', 'ppo.learningRate'])
    expect(columnsOf(all, PLAIN)[0]).toBe('environment')
    expect(columnsOf(all, { columns: ['seed'] })).toEqual(['seed'])
  })
})

describe('names that objects inherit', () => {
  const odd = ['constructor', '__proto__', 'toString', '', 'x'.repeat(10_000)]
  const some = [1, 2, 3].map((value) =>
    run(
      `${value}`,
      value === 3 ? {} : Object.fromEntries(odd.map((name) => [name, value])),
      JSON.parse(`{"reward":${value}}`),
    ),
  )

  test('are settings where a run has them, and nothing where it has not', () => {
    for (const name of odd) {
      expect(some.map((each) => cellOf([each], name))).toEqual([{ value: 1 }, { value: 2 }, null])
      expect(cellOf([run('none', {}, {})], name)).toBeNull()
    }
    expect(differentSettings(some)).toEqual(odd.toSorted())
    expect(some.filter((each) => passes(each, 'constructor>1')).map(({ id }) => id)).toEqual(['2'])
    expect(rowsOf(some, view({ groupBy: '__proto__' })).map(({ name }) => name)).toEqual([
      ...['__proto__ 1', '__proto__ 2', '__proto__ not set'],
    ])
  })

  test('without a number, which JSON has as null, are unknown', () => {
    expect(cellOf([run('a', {}, { loss: null as unknown as number })], 'loss')).toBeNull()
  })
})

describe('what settings explain', () => {
  test('is 1 − the variance within groups by the whole', () => {
    // By hand: squares within 2 + 2, of 4 − 2 degrees; as a whole 26, of 3.
    expect(
      explainedShare([
        [1, 3],
        [6, 8],
      ]),
    ).toBeCloseTo(1 - 2 / (29 / 3), 12)
    expect(
      explainedShare([
        [1, 2],
        [1, 2],
      ]),
    ).toBe(0)
    expect(explainedShare([[1], [2]])).toBeNaN()
    expect(explainedShare([[3, 3], [3]])).toBeNaN()
  })

  test('finds the setting that matters, and the value with the best mean', () => {
    const [found, ...more] = explainedBy(sweep, 'episodeReturn')
    expect(more).toEqual([])
    expect(found).toMatchObject({ setting: 'ppo.learningRate', best: '0.01', mean: 120, count: 3 })
    // Squares: within 200 + 200, of 6 − 2 degrees; as a whole 15,400, of 5.
    expect(found!.share).toBeCloseTo(1 - 100 / 3080, 12)
    expect(explainedBy(sweep.slice(2, 4), 'episodeReturn')).toEqual([])
  })

  test('puts numbers with many values into four ranges', () => {
    const random = Array.from({ length: 12 }, (_, i) =>
      run(`${i}`, { gamma: i / 100, seed: 1 }, { reward: i < 3 ? 5 + i : i % 3 }),
    )
    expect(explainedBy(random, 'reward')).toEqual([
      {
        setting: 'gamma',
        share: expect.closeTo(1 - 1 / (explainedTotal(random) / 11), 12),
        best: '0 to 0.02',
        mean: 6,
        count: 3,
      },
    ])
  })
})

function explainedTotal(runs: readonly ShownRun[]): number {
  const values = runs.map(({ last }) => last.reward!)
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  return values.reduce((sum, value) => sum + (value - mean) ** 2, 0)
}

describe('a link', () => {
  const ids = all.map(({ id }) => id)

  test('restores all of the view', () => {
    const whole = view({
      ...{ over: 'seconds', smoothing: 0.25, isLog: true, groupBy: 'ppo.learningRate', filter: 'a b>1', sort: '-x/y' },
      ...{ columns: ['status', 'x/y'], hidden: new Set(['other']), pinned: new Set([ids[1]!]), range: [1.5, 30] },
    })
    expect(viewOf(linkOf(whole, ids), ids)).toEqual(whole)
    expect(linkOf(PLAIN, ids)).toBe('')
    for (const hidden of [ids.slice(1), ids]) {
      const link = linkOf(view({ hidden: new Set(hidden) }), ids)
      expect(link).not.toContain('hide')
      expect(viewOf(link, ids).hidden).toEqual(new Set(hidden))
    }
  })

  test('with nonsense is as without', () => {
    expect(viewOf('over=height&smoothing=7&log=maybe&range=4+2', ids)).toEqual(PLAIN)
    expect(viewOf('range=1&over=constructor&smoothing=NaN', ids)).toEqual(PLAIN)
    for (const range of ['-1e308+1e308', '1+1.0000000000000002', '0+5e-324', '5+5', 'NaN+1'])
      expect(viewOf(`range=${range}`, ids).range).toBeNull()
  })
})

test('colors are restored from what a browser has stored, and begin anew if it is broken', () => {
  expect(placesOf('[["a",0],["__proto__",3]]')).toEqual(
    new Map([
      ['a', 0],
      ['__proto__', 3],
    ]),
  )
  for (const text of [
    null,
    '',
    '[[1',
    '{}',
    'null',
    '3',
    '"ab"',
    '[1]',
    '[null]',
    '[["a","b"]]',
    '[["a",-1]]',
    '[["a"]]',
  ])
    expect(placesOf(text), String(text)).toEqual(new Map())
})

test('queries name all runs, in as many as addresses need', () => {
  expect(queriesOf({}, [])).toEqual([''])
  expect(queriesOf({ metric: 'a b' }, ['x/y', '__proto__'])).toEqual(['metric=a+b&run=x%2Fy&run=__proto__'])
  const ids = Array.from({ length: 500 }, (_, i) => `sweep/${'é'.repeat(20)}-${i}`)
  const queries = queriesOf({ metric: 'loss' }, ids)
  expect(queries.flatMap((query) => new URLSearchParams(query).getAll('run'))).toEqual(ids)
  expect(queries.every((query) => query.length < 8000 && query.startsWith('metric=loss&'))).toBe(true)
  expect(queries.length).toBeLessThan(15)
})
