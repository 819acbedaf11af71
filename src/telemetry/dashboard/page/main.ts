/** The page: it requests runs and curves from its server, and requests them again when the server reports changes. */
import type { ShownRun } from '../runs.ts'
import { Charts } from './charts.ts'
import { CompareView } from './compare.ts'
import { ConversationsView } from './conversations.ts'
import { DiagnosisView } from './diagnosis.ts'
import { element, say } from './elements.ts'
import { FilesView } from './files.ts'
import { FleetView } from './fleet.ts'
import { HistogramsView } from './histograms.ts'
import { type Mark, Moments } from './marks.ts'
import { NotesDialog } from './notes.ts'
import { ReplayView } from './replay.ts'
import type { Row } from './rows.ts'
import { RunsTable } from './runs-table.ts'
import { phasesOf } from './tables.ts'
import { AXES, linkOf, PLAIN, placesOf, queriesOf, type View, viewOf } from './view.ts'

/** Distinguishable colors, also with color blindness, in light and dark mode. */
const COLORS = [
  ...['#2f7fb8', '#d55e00', '#12936b', '#b8579a', '#6a5acd'],
  ...['#8e6c2f', '#3aa0a8', '#7d7d7d', '#c0392b', '#b58900'],
]
/** Runs that are shown without being chosen: the last ones. */
const MAX_SHOWN = 50
/** Runs whose times are shown. */
const MAX_TIMED = 12
/** Milliseconds between changes of the address; browsers refuse more than a hundred in half a minute. */
const LINK_MS = 400

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

const view: View = { ...PLAIN }
let runs: readonly ShownRun[] = []
/** The ids of all runs, also of those that the server has not read yet. */
let all: readonly string[] = []
let hasRuns = false
/** Each run's color index, by its position in the list at its first appearance; this browser stores it. */
const colorPlaces = placesOf(kept.read('colors'))
let areColorsKept = true

function colorOf(id: string): string {
  const known = colorPlaces.get(id)
  if (known !== undefined) return COLORS[known % COLORS.length]!
  colorPlaces.set(id, colorPlaces.size)
  areColorsKept = false
  return colorOf(id)
}

const notes = element('div', { 'aria-live': 'polite' })
const times = element(
  'details',
  { id: 'times', toggle: () => showTimes() },
  element('summary', {}, 'Where the time goes'),
)
const timed = element('div')
times.append(timed)
const place = element('span', { class: 'quiet' })
const live = element('span', { class: 'quiet', role: 'status' }, 'connecting')
const notesDialog = new NotesDialog((id, annotation) =>
  ask(`api/notes?${new URLSearchParams({ run: id })}`, annotation),
)
let isReadOnly = true
const annotate = () => (isReadOnly ? null : (row: Row) => notesDialog.open(row))
const table = new RunsTable({ view, colorOf, annotate, change: showAgain })
const moments = new Moments(ask, view, () => charts.mark())
const marksOf = (runs: readonly ShownRun[]) => moments.of(runs)
const charts = new Charts({ view, ask, colorOf, say: complain, onRange: keepLink, marksOf, openMark })
const compare = new CompareView()
const [fleet, diagnosis, conversations] = [new FleetView(ask), new DiagnosisView(ask), new ConversationsView(ask)]
const [replay, histograms, files] = [new ReplayView(ask), new HistogramsView(ask), new FilesView(ask)]
const views = { picture: replay, rows: histograms, conversations }

/** Requests JSON from the server, or sends a body. @throws Error with the server's message. */
async function ask(path: string, body?: object): Promise<Record<string, unknown>> {
  const headers = { 'content-type': 'application/json' }
  const response = await fetch(path, body && { method: 'POST', headers, body: JSON.stringify(body) })
  const answer = (await response.json()) as Record<string, unknown>
  if (!response.ok) throw new Error((answer.error as { message?: string })?.message ?? response.statusText)
  return answer
}

function keepColors(): void {
  if (!areColorsKept) kept.write('colors', JSON.stringify([...colorPlaces].slice(-1000)))
  areColorsKept = true
}

/** Shows what a mark on a curve stands for. */
function openMark({ run, moment }: Mark): void {
  views[moment.kind].open(run, moment.file)
}

function complain(error: unknown): void {
  say(live, `cannot be reached: ${(error as Error).message}`)
}

/** The link that the page has read or written last. */
let lastLink = location.hash.slice(1)
let isLinkDue = false

/** The address restores what is shown, soon after a change. */
function keepLink(): void {
  if (isLinkDue) return
  isLinkDue = true
  setTimeout(() => {
    isLinkDue = false
    if (location.hash.slice(1) !== lastLink) return // Someone has typed another, which `hashchange` tells.
    const link = linkOf(view, all)
    if (link === lastLink) return
    history.replaceState(null, '', link === '' ? location.pathname : `#${link}`)
    lastLink = location.hash.slice(1)
  }, LINK_MS)
}

function takeLink(): void {
  const link = location.hash.slice(1)
  lastLink = link
  const before = view.over
  Object.assign(view, viewOf(link, all))
  const names = new URLSearchParams(link)
  if (!names.has('show') && !names.has('hide') && all.length > MAX_SHOWN)
    view.hidden = new Set(all.slice(0, -MAX_SHOWN))
  if (view.over !== before) charts.changeAxis()
  charts.range = view.range
  showControls()
}

/** Requests the runs that have changed; all, if none are named or more than an address holds. */
async function fetchRuns(ids: ReadonlySet<string>): Promise<void> {
  const [query, ...more] = queriesOf({}, ids)
  const isPart = hasRuns && ids.size > 0 && more.length === 0
  const answer = await ask(isPart ? `api/runs?${query}` : 'api/runs')
  const found = answer.runs as ShownRun[]
  const order = answer.ids as string[]
  all = answer.found as string[]
  const known = new Map([...(isPart ? runs : []), ...found].map((run) => [run.id, run]))
  if (isPart && order.some((id) => !known.has(id))) return fetchRuns(new Set())
  runs = order.flatMap((id) => known.get(id) ?? [])
  place.textContent = String(answer.folder)
  isReadOnly = answer.isReadOnly === true
  if (!hasRuns) {
    hasRuns = true
    takeLink()
  }
  showAgain()
}

/** Draws everything anew, after a change of the view or of runs. */
function showAgain(): void {
  table.show(runs)
  const rows = table.rows
    .map((row): Row => ({ ...row, runs: row.runs.filter(({ id }) => !view.hidden.has(id)) }))
    .filter((row) => row.runs.length > 0)
  const shown = rows.flatMap((row) => row.runs)
  const ids = shown.map(({ id }) => id)
  charts.show(rows)
  compare.show(shown)
  showTimes()
  fleet.show(shown.filter(({ fleetTime }) => fleetTime !== null).map(({ id }) => id))
  diagnosis.show(ids)
  conversations.show(shown.filter(({ kind }) => kind === 'conversations').map(({ id }) => id))
  replay.runs = shown
  histograms.show(ids)
  charts.mark()
  void moments.show(shown).catch(complain)
  files.show(ids)
  showNotes()
  keepLink()
  keepColors()
}

function showTimes(): void {
  if (!times.open) return
  const shown = table.rows.flatMap((row) => row.runs).filter(({ id }) => !view.hidden.has(id))
  const more = shown.length - MAX_TIMED
  timed.replaceChildren(
    phasesOf(shown.slice(0, MAX_TIMED)),
    more > 0 ? element('p', { class: 'quiet' }, `The first ${MAX_TIMED} of ${shown.length} shown runs.`) : '',
  )
}

function showNotes(): void {
  const numRead = runs.filter(({ isSkimmed }) => !isSkimmed).length
  const reading =
    numRead < runs.length ? [`reading: ${numRead} of ${runs.length} runs are read whole, the others in samples`] : []
  const told = runs.flatMap(({ id, notes: some }) => some.map((note) => `${id}: ${note}`))
  const none = 'There is no run in this folder yet. Start one: colonnade train CartPole-v1'
  const words = runs.length === 0 ? [none] : [...reading, ...told]
  if (notes.textContent === words.join('')) return
  notes.replaceChildren(...words.map((each) => element('p', { class: 'note' }, each)))
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
        charts.changed(ids)
        moments.changed(ids)
        await fetchRuns(ids)
        for (const part of [fleet, diagnosis, conversations, histograms, files]) part.changed(ids)
        // Waits as long as the request took, so that a reading server is not overloaded.
        await new Promise((resolve) => setTimeout(resolve, Math.min(500, performance.now() - begun)))
      }
    } catch (error) {
      complain(error)
    } finally {
      isBusy = false
    }
  }
  source.addEventListener('changed', (event) => {
    say(live, 'live')
    const { runs: ids } = JSON.parse((event as MessageEvent<string>).data) as { runs: string[] }
    // The first message of a connection names no runs: everything may have been missed, and all are requested.
    if (ids.length === 0) for (const part of [charts, moments]) part.changed(runs.map(({ id }) => id))
    changed = ids.length === 0 || changed?.size === 0 ? new Set() : new Set([...(changed ?? []), ...ids])
    void update()
  })
  source.addEventListener('error', () => {
    say(live, 'the server does not answer; the page may be outdated')
  })
}

const axis = element(
  'select',
  {
    change: () => {
      view.over = axis.value
      view.range = null
      charts.changeAxis()
      charts.range = null
      showAgain()
    },
  },
  ...Object.entries(AXES).map(([value, words]) => element('option', { value }, words)),
)
const smoothing = element('input', {
  ...{ type: 'range', min: '0', max: '0.99', step: '0.01' },
  input: () => {
    view.smoothing = Number(smoothing.value)
    charts.redraw()
    keepLink()
  },
})
const isLog = element('input', {
  type: 'checkbox',
  change: () => {
    view.isLog = isLog.checked
    charts.redraw()
    keepLink()
  },
})

function showControls(): void {
  axis.value = view.over
  smoothing.value = String(view.smoothing)
  isLog.checked = view.isLog
}

function themeChoice(): HTMLElement {
  const themes = ['as the system', 'light', 'dark']
  const applyTheme = (theme: string): void => {
    if (theme === themes[0]) document.documentElement.removeAttribute('data-theme')
    else document.documentElement.setAttribute('data-theme', theme)
    charts.redraw()
  }
  const theme = element(
    'select',
    {
      change: () => {
        kept.write('theme', theme.value)
        applyTheme(theme.value)
      },
    },
    ...themes.map((words) => element('option', {}, words)),
  )
  const stored = kept.read('theme')
  theme.value = themes.find((each) => each === stored) ?? themes[0]!
  applyTheme(theme.value)
  return element('label', {}, 'colors', theme)
}

showControls()
document.body.append(
  element(
    'header',
    {},
    ...[element('h1', {}, 'Colonnade'), place, live],
    ...[element('label', {}, 'over', axis), element('label', {}, 'smoothing', smoothing)],
    ...[element('label', {}, isLog, 'log scale'), themeChoice()],
  ),
  element(
    'main',
    {},
    ...[notes, table.root, compare.root, element('h2', {}, 'Curves'), charts.first],
    ...[element('details', {}, element('summary', {}, 'All other metrics'), charts.others)],
    ...[
      times,
      fleet.root,
      diagnosis.root,
      conversations.root,
      replay.root,
      histograms.root,
      files.root,
      notesDialog.root,
    ],
  ),
)
window.addEventListener('hashchange', () => {
  takeLink()
  showAgain()
})
listen()
