/** The charts of metrics: one for each metric and environment. Curves are requested when their chart is in sight. */
import { type Points, smooth, together } from '../../curves.ts'
import type { ShownRun } from '../runs.ts'
import { Chart, Linked } from './chart.ts'
import { element } from './elements.ts'
import type { Mark } from './marks.ts'
import type { Row } from './rows.ts'
import type { Ask } from './run-view.ts'
import type { Series } from './series.ts'
import { AXES, queriesOf, type View } from './view.ts'

/** Metrics shown first, including names within them; others are below. */
const FIRST = [
  ...[
    'evaluation/mean',
    'episodeReturn',
    'reward',
    'episodeLength',
    'completionLength',
    'loss',
    'policyLoss',
    'valueLoss',
  ],
  ...['entropy', 'approxKl', 'kl', 'referenceKl', 'clipFraction', 'clipRatio', 'gradNorm', 'learningRate', 'drops'],
  ...['staleness', 'rolloutAge', 'rolloutAgeSeconds', 'lanesIdleSeconds', 'actorWaitSeconds', 'learnerWaitSeconds'],
  'stepsPerSecond',
]
const rank = (name: string) => FIRST.findIndex((first) => name === first || name.split('/')[0] === first)

/** A chart of one metric. */
interface Shown {
  readonly metric: string
  /** The environment of its runs; null: of all. */
  readonly environment: string | null
  readonly chart: Chart
  /** Curves of the requested runs. */
  readonly curves: Map<string, Points>
  /** Runs whose curve has changed since. */
  readonly stale: Set<string>
}

/** What charts take from the page. */
export interface ChartsPage {
  readonly view: View
  readonly ask: Ask
  readonly colorOf: (id: string) => string
  readonly say: (error: unknown) => void
  readonly onRange: () => void
  /** What is marked of these runs, and what a mark opens. */
  readonly marksOf: (runs: readonly ShownRun[]) => readonly Mark[]
  readonly openMark: (mark: Mark) => void
}

const seriesName = (name: string, runs: readonly unknown[]) =>
  runs.length === 1 ? name : `${name} (${runs.length} runs)`

export class Charts {
  readonly first = element('div', { class: 'charts' })
  readonly others = element('div', { class: 'charts' })
  readonly #page: ChartsPage
  readonly #charts = new Map<string, Shown>()
  readonly #linked: Linked
  readonly #sight: IntersectionObserver
  /** The rows with their visible runs. */
  #rows: readonly Row[] = []

  constructor(page: ChartsPage) {
    this.#page = page
    this.#linked = new Linked(() => {
      page.view.range = this.#linked.range
      page.onRange()
    })
    this.#sight = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const found = [...this.#charts.values()].find(({ chart }) => chart.figure === target)
        if (found === undefined) continue
        found.chart.isInSight = isIntersecting
        if (isIntersecting) void this.#fetch(found).catch(page.say)
      }
    })
  }

  /** Shows these rows' visible runs: curves of what is in sight are requested where they are missing. */
  show(rows: readonly Row[]): void {
    this.#rows = rows
    const { view } = this.#page
    this.#linked.xTitle = AXES[view.over]!
    this.#linked.isLog = view.isLog
    const runs = rows.flatMap((row) => row.runs)
    const environments = new Set(runs.map(({ environment }) => environment))
    const wanted = new Map<string, Shown>()
    for (const run of runs) {
      const environment = environments.size > 1 ? run.environment : null
      for (const metric of run.names) {
        if (metric === 'line' || metric.startsWith('phaseSeconds/')) continue
        const title = environment === null ? metric : `${metric}, ${environment}`
        if (!wanted.has(title)) wanted.set(title, this.#chartOf(title, metric, environment))
      }
    }
    const [first, others]: [Shown[], Shown[]] = [[], []]
    for (const shown of wanted.values()) (rank(shown.metric) === -1 ? others : first).push(shown)
    first.sort((a, b) => rank(a.metric) - rank(b.metric))
    for (const [parent, some] of [
      [this.first, first],
      [this.others, others],
    ] as const) {
      const isSame =
        parent.children.length === some.length && some.every(({ chart }, i) => parent.children[i] === chart.figure)
      if (!isSame) parent.replaceChildren(...some.map(({ chart }) => chart.figure))
    }
    for (const shown of wanted.values()) if (shown.chart.isInSight) void this.#fetch(shown).catch(this.#page.say)
  }

  /** Sets the visible range of x. */
  set range(range: View['range']) {
    this.#linked.range = range
  }

  /** Curves over another metric. */
  changeAxis(): void {
    for (const { curves } of this.#charts.values()) curves.clear()
  }

  /** Requests these runs' curves again. */
  changed(ids: Iterable<string>): void {
    for (const id of ids) for (const { stale } of this.#charts.values()) stale.add(id)
  }

  redraw(): void {
    this.#linked.isLog = this.#page.view.isLog
    for (const shown of this.#charts.values()) if (shown.chart.isInSight) this.#draw(shown)
  }

  /** Marks the runs' moments on the first chart of each environment. */
  mark(): void {
    const seen = new Set<string | null>()
    for (const figure of this.first.children) {
      const shown = [...this.#charts.values()].find(({ chart }) => chart.figure === figure)
      if (shown === undefined) continue
      const isFirst = !seen.has(shown.environment)
      seen.add(shown.environment)
      const marks = this.#rowsOf(shown).flatMap(({ name, runs }) =>
        this.#page.marksOf(runs).map((mark) => ({ series: seriesName(name, runs), mark })),
      )
      shown.chart.setMarks(isFirst ? marks : [], this.#page.openMark)
    }
  }

  #chartOf(title: string, metric: string, environment: string | null): Shown {
    const known = this.#charts.get(title)
    if (known !== undefined) return known
    const chart = new Chart(title, this.#linked)
    chart.isInSight = false // Until it is seen.
    const shown: Shown = { metric, environment, chart, curves: new Map(), stale: new Set() }
    this.#charts.set(title, shown)
    this.#sight.observe(chart.figure)
    return shown
  }

  #rowsOf({ metric, environment }: Shown): { readonly name: string; readonly runs: readonly ShownRun[] }[] {
    return this.#rows
      .map(({ name, runs }) => ({
        name,
        runs: runs.filter(
          (run) => run.names.includes(metric) && (environment === null || run.environment === environment),
        ),
      }))
      .filter(({ runs }) => runs.length > 0)
  }

  /** Draws the known curves, then also missing and changed ones, which it requests. */
  async #fetch(shown: Shown): Promise<void> {
    const { curves, stale, metric } = shown
    const runs = this.#rowsOf(shown).flatMap((row) => row.runs)
    const wanted = runs.filter(({ id }) => stale.has(id) || !curves.has(id))
    this.#draw(shown)
    if (wanted.length === 0) return
    const { over } = this.#page.view
    for (const { id } of wanted) stale.delete(id)
    const queries = queriesOf(
      { metric, over },
      wanted.map(({ id }) => id),
    )
    const asked = Promise.all(queries.map((query) => this.#page.ask(`api/curves?${query}`)))
    const answers = await asked.catch((error) => {
      for (const { id } of wanted) stale.add(id)
      throw error
    })
    if (over !== this.#page.view.over) return // The axis has changed: another request is on its way.
    for (const answer of answers)
      for (const [id, points] of Object.entries(answer.curves as Record<string, Points>)) curves.set(id, points)
    this.#draw(shown)
  }

  #draw(shown: Shown): void {
    const { smoothing } = this.#page.view
    shown.chart.series = this.#rowsOf(shown).flatMap(({ name, runs }): Series[] => {
      const known = runs.filter(({ id }) => shown.curves.has(id))
      if (known.length === 0) return []
      const color = this.#page.colorOf(known[0]!.id)
      const curves = known.map(({ id }) => {
        const { x, y } = shown.curves.get(id)!
        return { x, y: smooth(y, smoothing) }
      })
      if (known.length === 1) {
        const raw = smoothing > 0 ? shown.curves.get(known[0]!.id)!.y : null
        return [{ ...{ name, color, raw, band: null }, ...curves[0]! }]
      }
      const { x, y, low, high } = together(curves)
      return [{ ...{ name: seriesName(name, known), color, x, y }, raw: null, band: { low, high } }]
    })
  }
}
