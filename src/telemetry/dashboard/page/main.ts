/** The page: it requests runs and curves from its server, and requests them again when the server reports changes. */
import { type Points, smooth, together } from '../../curves.ts'
import type { ShownRun } from '../runs.ts'
import { Chart } from './chart.ts'
import { ConversationsView } from './conversations.ts'
import { DiagnosisView } from './diagnosis.ts'
import { colored, element, shortNumber } from './elements.ts'
import { FilesView } from './files.ts'
import { FleetView } from './fleet.ts'
import { ReplayView } from './replay.ts'
import type { Series } from './series.ts'
import { newestTable, phasesOf, settingsTable } from './tables.ts'

/** Distinguishable colors, also with color blindness, in light and dark mode. */
const COLORS = [
  ...['#2f7fb8', '#d55e00', '#12936b', '#b8579a', '#6a5acd'],
  ...['#8e6c2f', '#3aa0a8', '#7d7d7d', '#c0392b', '#b58900'],
]
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
    'entropy',
  ],
  ...['approxKl', 'kl', 'referenceKl', 'clipFraction', 'clipRatio', 'gradNorm', 'learningRate', 'drops', 'staleness'],
  ...[
    'rolloutAge',
    'rolloutAgeSeconds',
    'lanesIdleSeconds',
    'actorWaitSeconds',
    'learnerWaitSeconds',
    'stepsPerSecond',
  ],
]
/** The choices for the x axis. */
const AXES: Readonly<Record<string, string>> = { line: 'updates', steps: 'environment steps', seconds: 'seconds' }
const MAX_SHOWN = 50

const kept = {
  read: (key: string): string | null => {
    try {
      return localStorage.getItem(`colonnade.${key}`)
    } catch {
      return null // Storage may be disabled.
    }
  },
  write: (key: string, value: string): void => {
    try {
      localStorage.setItem(`colonnade.${key}`, value)
    } catch {
      // As above.
    }
  },
}

const state = {
  runs: [] as readonly ShownRun[],
  hidden: new Set<string>(),
  axis: 'line',
  weight: Number(kept.read('smoothing') ?? 0.6),
  hasBands: true,
}
/** Each run's color index, by its position in the list at its first appearance; this browser stores it. */
const colorPlaces = new Map<string, number>(JSON.parse(kept.read('colors') ?? '[]') as [string, number][])

function colorOf(id: string): string {
  if (!colorPlaces.has(id)) {
    colorPlaces.set(id, colorPlaces.size)
    kept.write('colors', JSON.stringify([...colorPlaces].slice(-1000)))
  }
  return COLORS[colorPlaces.get(id)! % COLORS.length]!
}

/** The color of a run; in a band of seeds, the first seed's color. */
function drawnColor(id: string): string {
  const { group } = state.runs.find((run) => run.id === id)!
  const band = state.hasBands ? visible().filter((run) => run.group === group) : []
  return colorOf(band.some((run) => run.id === id) ? band[0]!.id : id)
}

/** A metric's chart, and whether it is visible. */
interface Shown {
  readonly chart: Chart
  isInSight: boolean
  /** Curves of the requested runs. */
  readonly curves: Map<string, Points>
  /** Runs whose curve has changed since. */
  readonly stale: Set<string>
}

const charts = new Map<string, Shown>()
const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const found = [...charts].find(([, { chart }]) => chart.figure === target)
    if (found === undefined) continue
    found[1].isInSight = isIntersecting
    if (isIntersecting) void fetchCurves(...found).catch(say)
  }
})

const list = element('ul')
const notes = element('div', { 'aria-live': 'polite' })
const first = element('div', { class: 'charts' })
const others = element('div', { class: 'charts' })
const tables = element('div')
const fleet = new FleetView(ask)
const diagnosis = new DiagnosisView(ask)
const conversations = new ConversationsView(ask)
const replay = new ReplayView(ask)
const files = new FilesView(ask)
const place = element('span', { class: 'quiet' })
const live = element('span', { class: 'quiet', role: 'status' }, 'connecting')

const visible = (): ShownRun[] => state.runs.filter(({ id }) => !state.hidden.has(id))

/** Requests JSON from the server. @throws Error with its message. */
async function ask(path: string): Promise<Record<string, unknown>> {
  const response = await fetch(path)
  const answer = (await response.json()) as Record<string, unknown>
  if (!response.ok) throw new Error((answer.error as { message?: string })?.message ?? response.statusText)
  return answer
}

async function fetchRuns(): Promise<void> {
  const { runs, folder } = await ask('api/runs')
  state.runs = runs as ShownRun[]
  if (state.runs.length > MAX_SHOWN && charts.size === 0) {
    for (const { id } of state.runs.slice(0, -MAX_SHOWN)) state.hidden.add(id)
  }
  place.textContent = String(folder)
  showRuns()
  showCharts()
  showTables()
  showParts()
}

/** Updates the runs available to the parts below the tables. */
function showParts(): void {
  const runs = visible()
  fleet.show(runs.filter(({ fleetTime }) => fleetTime !== null).map(({ id }) => id))
  diagnosis.show(runs.map(({ id }) => id))
  conversations.show(runs.filter(({ kind }) => kind === 'conversations').map(({ id }) => id))
  replay.runs = runs
  files.show(runs.map(({ id }) => id))
}

/** Requests missing and changed curves. */
async function fetchCurves(name: string, shown: Shown): Promise<void> {
  const { curves, stale } = shown
  const wanted = visible().filter(({ id, names }) => names.includes(name) && (stale.has(id) || !curves.has(id)))
  if (wanted.length === 0) {
    drawCurves(shown)
    return
  }
  const query = new URLSearchParams({ metric: name, over: state.axis })
  for (const { id } of wanted) {
    query.append('run', id)
    stale.delete(id)
  }
  const { axis } = state
  const answer = await ask(`api/curves?${query}`).catch((error) => {
    for (const { id } of wanted) stale.add(id)
    throw error
  })
  if (axis !== state.axis) return // The axis has changed: another request is on its way.
  for (const [id, points] of Object.entries(answer.curves as Record<string, Points>)) curves.set(id, points)
  drawCurves(shown)
}

function drawCurves(shown: Shown): void {
  const groups = new Map<string, ShownRun[]>()
  for (const run of visible()) {
    if (!shown.curves.has(run.id)) continue
    const key = state.hasBands ? run.group : run.id
    groups.set(key, [...(groups.get(key) ?? []), run])
  }
  shown.chart.series = [...groups.values()].map((runs): Series => {
    const [one, ...more] = runs
    const color = colorOf(one!.id)
    const curves = runs.map(({ id }) => {
      const { x, y } = shown.curves.get(id)!
      return { x, y: smooth(y, state.weight) }
    })
    if (more.length === 0) {
      return {
        ...{ name: one!.id, color, ...curves[0]! },
        raw: state.weight > 0 ? shown.curves.get(one!.id)!.y : null,
        band: null,
      }
    }
    const { x, y, low, high } = together(curves)
    return { ...{ name: `${one!.id} and ${more.length} more seeds`, color, x, y }, raw: null, band: { low, high } }
  })
}

function redraw(): void {
  for (const shown of charts.values()) drawCurves(shown)
}

/** Requests the curves of visible charts; others follow when they become visible. */
function refresh(): void {
  for (const [name, shown] of charts) {
    if (shown.isInSight) void fetchCurves(name, shown).catch(say)
  }
}

function showRuns(): void {
  const items = state.runs.map(({ id, environment, algorithm, status, lines, isSkimmed, last }) => {
    const box = element('input', {
      type: 'checkbox',
      change: (event) => {
        if ((event.target as HTMLInputElement).checked) state.hidden.delete(id)
        else state.hidden.add(id)
        showAgain()
      },
    })
    box.checked = !state.hidden.has(id)
    const swatch = colored(element('span', { class: 'swatch' }), drawnColor(id))
    const worth = last.episodeReturn ?? last.reward
    const words = [
      `${environment} by ${algorithm}`,
      status,
      `${lines} updates${isSkimmed ? ', still being read' : ''}`,
      worth === undefined ? '' : `at ${shortNumber(worth)}`,
    ]
    return element(
      'li',
      {},
      element('label', {}, box, swatch, id),
      element('span', { class: 'quiet' }, words.filter(Boolean).join(', ')),
    )
  })
  const hasFocus = list.contains(document.activeElement)
  const place = hasFocus ? [...list.querySelectorAll('input')].indexOf(document.activeElement as HTMLInputElement) : -1
  list.replaceChildren(...items)
  list.querySelectorAll('input')[place]?.focus()
  const told = state.runs.flatMap(({ id, notes: some }) => some.map((note) => `${id}: ${note}`))
  const none = 'There is no run in this folder yet. Start one: colonnade train CartPole-v1'
  notes.replaceChildren(
    ...(state.runs.length === 0 ? [none] : told).map((words) => element('p', { class: 'note' }, words)),
  )
}

const rank = (name: string) => FIRST.findIndex((first) => name === first || name.split('/')[0] === first)
const isFirst = (name: string) => rank(name) !== -1

function showCharts(): void {
  const names = [...new Set(visible().flatMap((run) => run.names))].filter(
    (name) => !/^(line|phaseSeconds\/.*)$/.test(name),
  )
  for (const name of names) {
    if (charts.has(name)) continue
    const shown: Shown = { chart: new Chart(name), isInSight: false, curves: new Map(), stale: new Set() }
    charts.set(name, shown)
    sight.observe(shown.chart.figure)
  }
  const figures = (some: readonly string[]) => some.map((name) => charts.get(name)!.chart.figure)
  const wanted = names.filter(isFirst).sort((a, b) => rank(a) - rank(b))
  for (const [parent, children] of [
    [first, figures(wanted)],
    [others, figures(names.filter((name) => !isFirst(name)))],
  ] as const) {
    const isSame =
      parent.children.length === children.length && children.every((child, i) => parent.children[i] === child)
    if (!isSame) parent.replaceChildren(...children)
  }
}

function showTables(): void {
  const runs = visible()
  if (runs.length === 0) {
    tables.replaceChildren()
    return
  }
  tables.replaceChildren(
    ...[element('h2', {}, 'Settings that differ'), settingsTable(runs)],
    ...[element('h2', {}, 'Where the time goes'), phasesOf(runs)],
    ...[element('h2', {}, 'Newest figures'), newestTable(runs)],
  )
}

function say(error: unknown): void {
  live.textContent = `cannot be reached: ${(error as Error).message}`
}

function listen(): void {
  const source = new EventSource('api/changes')
  let isBusy = false
  let changed: Set<string> | null = null
  const update = async (): Promise<void> => {
    if (isBusy) return
    isBusy = true
    try {
      while (changed !== null) {
        const ids: Set<string> = changed
        changed = null
        const begun = performance.now()
        for (const { stale } of charts.values()) for (const id of ids) stale.add(id)
        await fetchRuns()
        refresh()
        for (const part of [fleet, diagnosis, conversations, files]) part.changed(ids)
        // Waits as long as the request took, so that a reading server is not overloaded.
        await new Promise((resolve) => setTimeout(resolve, Math.min(500, performance.now() - begun)))
      }
    } catch (error) {
      say(error)
    } finally {
      isBusy = false
    }
  }
  source.addEventListener('changed', (event) => {
    live.textContent = 'live'
    const { runs } = JSON.parse((event as MessageEvent<string>).data) as { runs: string[] }
    // The first message of a connection names no runs: everything may have been missed.
    changed = new Set([...(changed ?? []), ...(runs.length === 0 ? state.runs.map(({ id }) => id) : runs)])
    void update()
  })
  source.addEventListener('error', () => {
    live.textContent = 'the server does not answer; the page may be outdated'
  })
}

function controls(): HTMLElement {
  const axis = element(
    'select',
    {
      change: (event) => {
        state.axis = (event.target as HTMLSelectElement).value
        for (const { curves } of charts.values()) curves.clear()
        refresh()
      },
    },
    ...Object.entries(AXES).map(([value, words]) => element('option', { value }, words)),
  )
  const smoothing = element('input', {
    ...{ type: 'range', min: '0', max: '0.99', step: '0.01', value: String(state.weight) },
    input: (event) => {
      state.weight = Number((event.target as HTMLInputElement).value)
      kept.write('smoothing', String(state.weight))
      redraw()
    },
  })
  const bands = element('input', {
    type: 'checkbox',
    checked: true,
    change: (event) => {
      state.hasBands = (event.target as HTMLInputElement).checked
      showRuns()
      redraw()
    },
  })
  const themes = ['as the system', 'light', 'dark']
  const applyTheme = (theme: string): void => {
    if (theme === themes[0]) document.documentElement.removeAttribute('data-theme')
    else document.documentElement.setAttribute('data-theme', theme)
    redraw()
  }
  const theme = element(
    'select',
    {
      change: (event) => {
        const { value } = event.target as HTMLSelectElement
        kept.write('theme', value)
        applyTheme(value)
      },
    },
    ...themes.map((words) => element('option', {}, words)),
  )
  theme.value = kept.read('theme') ?? themes[0]!
  applyTheme(theme.value)
  return element(
    'header',
    {},
    ...[element('h1', {}, 'Colonnade'), place, live],
    ...[element('label', {}, 'over', axis), element('label', {}, 'smoothing', smoothing)],
    ...[element('label', {}, bands, 'seeds as bands'), element('label', {}, 'colors', theme)],
  )
}

function showAll(isShown: boolean): void {
  state.hidden = new Set(isShown ? [] : state.runs.map(({ id }) => id))
  showAgain()
}

/** Redraws after a change of the chosen runs. */
function showAgain(): void {
  showRuns()
  showCharts()
  showTables()
  showParts()
  refresh()
}

document.body.append(
  controls(),
  element(
    'div',
    { class: 'columns' },
    element(
      'nav',
      { 'aria-label': 'runs' },
      element('button', { type: 'button', click: () => showAll(true) }, 'all'),
      ' ',
      element('button', { type: 'button', click: () => showAll(false) }, 'none'),
      list,
    ),
    element(
      'main',
      {},
      notes,
      element('h2', {}, 'Curves'),
      first,
      tables,
      element('details', {}, element('summary', {}, 'All other metrics'), others),
      fleet.root,
      diagnosis.root,
      conversations.root,
      replay.root,
      files.root,
    ),
  ),
)
listen()
