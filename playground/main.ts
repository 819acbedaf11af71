/** The page. One worker learns, another has the lanes that are seen, whose policy acts with the newest weights, and a third draws them. */
import { Chart } from '../src/telemetry/dashboard/page/chart.ts'
import { Guarded } from './guarded.ts'
import { read, write } from './link.ts'
import type { Ask, AskLanes, AskPainter, Format, Source, Told, ToldLanes, ToldPainter, Tuning } from './messages.ts'
import { Pace } from './pace.ts'
import { SAMPLE } from './sample.ts'
import { type Colors, OWN, type Scene, sceneOf, scenes } from './scenes.ts'
import { Sees } from './sees.ts'

const byId = <E extends HTMLElement>(id: string) => document.getElementById(id) as E
const canvas = byId<HTMLCanvasElement>('lanes')
const choice = byId<HTMLSelectElement>('environment')
const toggle = byId<HTMLButtonElement>('toggle')
const playing = byId<HTMLButtonElement>('play')
const rate = byId<HTMLInputElement>('rate')
const entropy = byId<HTMLInputElement>('entropy')
const seed = byId<HTMLInputElement>('seed')
const code = byId<HTMLTextAreaElement>('code')
const said = byId('said')
const downloads = [...document.querySelectorAll<HTMLButtonElement>('#downloads [data-format]')]
const chart = new Chart('Mean return of 100 episodes, by steps')
byId('curve').append(chart.figure)
const sees = new Sees(byId('numbers'), byId('did'))

/** Milliseconds between two times that figures are shown: what changes in each frame nobody can read, and the page is laid out anew for it. */
const SHOWN_MS = 100
/** Points of the curve; when there are twice as many, every other one is left out. */
const POINTS = 1000

const trainer = new Guarded<Ask, Told>(new URL('./worker.js', import.meta.url), heardTrainer, failed)
const lanes = new Guarded<AskLanes, ToldLanes>(new URL('./lanes.js', import.meta.url), heardLanes, failed)
const painter = new Worker(new URL('./painter.js', import.meta.url), { type: 'module' })
const paint = (asked: AskPainter, moved: Transferable[] = []) => painter.postMessage(asked, moved)
painter.addEventListener('message', ({ data }: MessageEvent<ToldPainter>) => {
  layout = data
  if (begun !== null && !isPlaying) showCaption()
})
painter.addEventListener('error', ({ message }) => failed(`the lanes cannot be drawn: ${message}`))

let scene: Scene = scenes[0]!
/** Null until the lanes' worker has told what they are. */
let begun: Extract<ToldLanes, { told: 'begun' }> | null = null
/** Where the new lanes' frames come from; the painter takes it once it knows what they are. */
let frames: MessagePort
/** The newest of the lane that is looked at, until it is shown. */
let seen: Extract<ToldLanes, { told: 'frame' }> | null = null
let update: Extract<Told, { told: 'update' }> | null = null
let shownAt = 0
/** How many eighths of its time the trainer may train. */
let pace = new Pace(8)
let eighths = 8
let layout: ToldPainter = { told: 'layout', columns: 1, drawn: 1 }
let isRunning = false
let isPlaying = false
/** Whether nothing can go on: it went wrong, or waits for a person. */
let isOver = false
/** Whether one's own environment is a text that came with a link, which nobody has used yet. */
let isForeign = false
let isAsked = false
let frame = 0
/** The lane that is looked at. */
let lane = 0
let tuning: Tuning | null = null
let weights: Float32Array<ArrayBuffer> | null = null
const pressed = new Set<string>()
let lastAction = 0
let curve: { x: number[]; y: number[] } = { x: [], y: [] }
/** Updates between two points of the curve. */
let stride = 1
let numUpdates = 0
let steps = 0
/** Whether people were told that it is solved. */
let isSolved = false
/** Times and step counts of updates, for steps per second. */
let marks: { at: number; steps: number }[] = []

for (const { id } of scenes) choice.add(new Option(id.replace(/-v\d+$/, ''), id))
choice.add(new Option('Your own…', OWN))

const source = (): Source => ({ environment: scene.id, code: scene.id === OWN ? code.value : null })
const isWide = () => !matchMedia('(max-width: 52rem)').matches

/** Ends what runs, and takes away what it left. */
function clear(given: Tuning | null): void {
  for (const guarded of [trainer, lanes]) {
    guarded.end() // What an environment of one's own left behind is gone with its worker.
    guarded.isWatched = scene.id === OWN
  }
  tuning = given
  weights = null
  update = null
  curve = { x: [], y: [] }
  marks = []
  stride = 1
  numUpdates = 0
  steps = 0
  isSolved = false
  show({ steps: null, speed: null, episodeReturn: null, entropy: null })
  tellPeople('')
  drawCurve()
  setRunning(false)
  for (const button of downloads) button.disabled = true
}

/** Begins with fresh weights; with the environment's own settings unless some are given. */
function begin(given: Tuning | null): void {
  if (scene.id === OWN && isForeign) {
    hold(given)
    return
  }
  clear(given)
  isOver = false
  pace = new Pace(8)
  eighths = 8
  trainer.ask({ ask: 'begin', source: source(), seed: Number(seed.value), tuning: given }, true)
  beginLanes()
  share()
}

/** Shows a text that came with a link, and runs none of it before a person says so: it could read what this site keeps. */
function hold(given: Tuning | null): void {
  clear(given)
  isOver = true
  begun = null
  byId('caption').textContent = ''
  if (given !== null) showTuning(given)
  tellPeople('This environment came with a link. Read it; “Use it” runs it.')
}

/** Begins the lanes that are seen; two where a person plays beside the policy. */
function beginLanes(): void {
  begun = null
  seen = null
  isAsked = false
  frame = 0
  lane = 0
  const { port1, port2 } = new MessageChannel()
  frames = port2
  const numLanes = isPlaying ? 2 : scene.numLanes[isWide() ? 0 : 1]
  lanes.ask({ ask: 'begin', source: source(), seed: Number(seed.value), numLanes, frames: port1 }, true, [port1])
  if (weights !== null) sendWeights()
}

function sendWeights(): void {
  const copy = weights!.slice()
  lanes.ask({ ask: 'weights', weights: copy }, false, [copy.buffer])
}

function failed(message: string): void {
  isOver = true
  for (const guarded of [trainer, lanes]) guarded.end()
  setRunning(false)
  begun = null
  tellPeople(message, true)
}

function heardTrainer(told: Told): void {
  if (told.told === 'wrong') {
    failed(told.message)
    return
  }
  if (told.told === 'file') {
    download(told.name, told.bytes)
    return
  }
  if (told.told === 'begun') {
    tuning = told.tuning
    showTuning(tuning)
    return
  }
  if (isRunning) trainer.expect(true)
  const at = performance.now()
  steps = told.steps
  marks = [...marks.filter((mark) => at - mark.at < 1000), { at, steps }]
  if (told.weights === null) return
  weights = told.weights
  if (begun !== null) sendWeights()
  update = told
  if (told.episodeReturn !== null && numUpdates++ % stride === 0) addPoint(steps, told.episodeReturn)
  if (told.isSolved && !isSolved) {
    isSolved = true
    showNewest()
    tellPeople(`Solved: a mean return of at least ${told.returnThreshold} over 100 episodes.`)
  }
  for (const button of downloads) button.disabled = false
}

/** Shows the newest figures. */
function showNewest(): void {
  if (update !== null) {
    const [first, last] = [marks[0]!, marks.at(-1)!]
    const speed = last.at > first.at ? (1000 * (last.steps - first.steps)) / (last.at - first.at) : null
    show({ ...update, steps, speed })
    if (curve.x.length > 0) drawCurve()
    update = null
  }
  if (seen === null || begun === null) return
  if (isPlaying) showCaption()
  const { low, high, numActions } = begun
  if (byId<HTMLDetailsElement>('sees').open) sees.show(scene, { ...seen, ...seen.seen, low, high, numActions })
  if (!isPlaying) seen = null
}

function showCaption(): void {
  const { numLanes } = begun!
  const [all, drawn] = [numLanes, layout.drawn].map((each) => each.toLocaleString('en-US'))
  const told = seen === null ? '' : `, ${seen.seen.episodeReturn.toFixed(1)}`
  const mine = seen === null ? '' : `: ${seen.mine.toFixed(1)}`
  const few = layout.drawn < numLanes ? `${drawn} of ${all} lanes are drawn, since frames came late.` : `${all} lanes.`
  const rests = eighths < 8 ? ` So that frames come in time, it trains ${eighths} / 8 of its time.` : ''
  byId('caption').textContent = isPlaying
    ? `Left: the policy${told}. Right: you, by ${keysOf(scene)}${mine}.`
    : `${few} ${scene.caption}${rests}`
}

function heardLanes(told: ToldLanes): void {
  if (told.told === 'wrong') {
    failed(told.message)
    return
  }
  if (told.told === 'browser') {
    showBrowser(told.report)
    return
  }
  if (told.told === 'begun') {
    begun = told
    const space = { kind: 'box' as const, ...told }
    if (scene.id === OWN) scene = sceneOf(space, told.numActions, told.bounds)
    const { numLanes, numActions, bounds } = told
    layout = { told: 'layout', columns: 1, drawn: numLanes }
    showCaption()
    paint({ ask: 'lanes', environment: scene.id, space, numActions, bounds, numLanes, isPlaying, frames }, [frames])
    askFrame(1)
    return
  }
  if (begun === null) return // Of lanes before these.
  isAsked = false
  seen = told
}

const ARROWS: Readonly<Record<string, string>> = { ArrowLeft: '←', ArrowRight: '→', ArrowUp: '↑' }
const keysOf = ({ play: { keys } }: Scene) =>
  Object.keys(keys)
    .map((key) => ARROWS[key])
    .join(' ')

function askFrame(numSteps: number): void {
  isAsked = true
  lanes.ask({ ask: 'frame', steps: numSteps, lane, action: isPlaying ? actionOf() : null }, true)
}

/** What the pressed keys say. */
function actionOf(): number {
  const { keys, idle } = scene.play
  const key = Object.keys(keys).find((each) => pressed.has(each))
  const action = key === undefined ? (idle ?? lastAction) : keys[key]!
  lastAction = action
  return action
}

function addPoint(x: number, y: number): void {
  curve.x.push(x)
  curve.y.push(y)
  if (curve.x.length === 2 * POINTS) {
    curve = { x: curve.x.filter((_, i) => i % 2 === 0), y: curve.y.filter((_, i) => i % 2 === 0) }
    stride *= 2
  }
}

const learningRate = () => Number((10 ** Number(rate.value)).toPrecision(3))

function showTuning(given: Tuning | null): void {
  if (given !== null) {
    rate.value = String(Math.log10(given.learningRate))
    entropy.value = String(given.entropyCoef)
  }
  byId('rate-shown').textContent = learningRate().toExponential(1)
  rate.setAttribute('aria-valuetext', learningRate().toExponential(1))
  byId('entropy-shown').textContent = Number(entropy.value).toFixed(3)
}

/** Goes on from the weights with other settings. */
function tune(): void {
  tuning = { learningRate: learningRate(), entropyCoef: Number(entropy.value) }
  share()
  if (isOver) return
  trainer.ask({ ask: 'tune', tuning }, false)
  const of = `learning rate ${tuning.learningRate.toExponential(1)}, entropy coefficient ${tuning.entropyCoef.toFixed(3)}`
  tellPeople(`From step ${steps.toLocaleString('en-US')} on: ${of}.`)
}

function show(figures: Record<'steps' | 'speed' | 'episodeReturn' | 'entropy', number | null>): void {
  const whole = (value: number | null) => (value === null ? '–' : Math.round(value).toLocaleString('en-US'))
  byId('return').textContent = figures.episodeReturn?.toFixed(1) ?? '–'
  byId('steps').textContent = whole(figures.steps)
  byId('speed').textContent = whole(figures.speed)
  byId('entropy-now').textContent = figures.entropy?.toFixed(2) ?? '–'
}

function tellPeople(message: string, isWrong = false): void {
  if (said.textContent === message) return
  said.textContent = message
  said.classList.toggle('wrong', isWrong)
}

function showBrowser({ threads, why, kernels, checks }: Extract<ToldLanes, { told: 'browser' }>['report']): void {
  const lines = [
    `Threads of a training: ${threads}${why === null ? '' : `, since ${why}`}`,
    `Kernels: ${kernels ?? 'none'}`,
    ...checks.map(({ name, why }) => `${name}: ${why === null ? 'yes' : `no, ${why}`}`),
  ]
  byId('checks').replaceChildren(
    ...lines.map((line) => Object.assign(document.createElement('li'), { textContent: line })),
  )
}

function drawCurve(): void {
  const color = getComputedStyle(document.documentElement).getPropertyValue('--accent').trim()
  chart.series = [{ name: 'return', color, raw: null, band: null, ...curve }]
}

function setRunning(isOn: boolean): void {
  isRunning = isOn
  toggle.textContent = isOn ? 'Pause' : steps > 0 ? 'Go on' : 'Start'
}

function run(isOn: boolean): void {
  if (isOver) begin(tuning)
  if (isOver) return
  setRunning(isOn)
  trainer.ask({ ask: isOn ? 'go' : 'pause' }, false)
  trainer.expect(isOn)
}

function setPlaying(isOn: boolean): void {
  isPlaying = isOn
  playing.setAttribute('aria-pressed', String(isOn))
  playing.textContent = isOn ? 'Stop playing' : 'Play beside it'
  pressed.clear()
  if (isOn) canvas.focus()
  if (!isOver) beginLanes()
}

function share(): void {
  const words = write({ environment: scene.id, seed: Number(seed.value), tuning, code: source().code })
  history.replaceState(null, '', words)
}

function download(name: string, bytes: Uint8Array<ArrayBuffer>): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([bytes]))
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
}

function resize(): void {
  const { clientWidth, clientHeight } = canvas
  const ratio = Math.min(2, devicePixelRatio)
  const [width, height] = [clientWidth, clientHeight].map((each) => Math.max(1, Math.round(each * ratio)))
  paint({ ask: 'size', width: width!, height: height! })
}

function color(): void {
  const looks = getComputedStyle(document.documentElement)
  const [low, high, ground] = ['--fallen', '--accent', '--grid'].map((name) => looks.getPropertyValue(name).trim())
  paint({ ask: 'colors', colors: { low: low!, high: high!, ground: ground! } satisfies Colors })
  drawCurve()
}

/** Asks for the next frame, unless the last one is still awaited. */
function next(now: number): void {
  requestAnimationFrame(next)
  if (now - shownAt >= SHOWN_MS) {
    shownAt = now
    showNewest()
  }
  pace.tick(now, isRunning)
  if (pace.allowed !== eighths) {
    eighths = pace.allowed
    trainer.ask({ ask: 'share', share: eighths / 8 }, false)
    if (begun !== null && !isPlaying) showCaption()
  }
  if (begun === null || document.hidden) return
  const every = isPlaying ? scene.play.frames : scene.frames
  if ((isRunning || isPlaying) && frame++ % every === 0 && !isAsked) askFrame(1)
}

function choose(id: string, given: Tuning | null): void {
  scene = scenes.find((each) => each.id === id) ?? sceneOf({ kind: 'box', shape: [1], low: [0], high: [1] }, 2, [0, 1])
  choice.value = scene.id
  byId('editor').hidden = scene.id !== OWN
  if (scene.id === OWN && code.value === '') code.value = SAMPLE
  begin(given)
}

/** Runs the text that a person has written, or has read after it came with a link. */
function use(): void {
  isForeign = false
  begin(tuning)
}

choice.addEventListener('change', () => choose(choice.value, null))
toggle.addEventListener('click', () => run(!isRunning))
playing.addEventListener('click', () => setPlaying(!isPlaying))
byId('restart').addEventListener('click', () => seed.reportValidity() && begin(tuning))
byId('editor').addEventListener('submit', (event) => {
  event.preventDefault()
  use()
})
code.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) use()
})
for (const slider of [rate, entropy]) {
  slider.addEventListener('input', () => showTuning(null))
  slider.addEventListener('change', tune)
}
byId('controls').addEventListener('submit', (event) => event.preventDefault())
for (const button of downloads) {
  button.addEventListener('click', () => trainer.ask({ ask: 'file', format: button.dataset.format as Format }, false))
}
byId('link').addEventListener('click', async () => {
  share()
  // An address without TLS has no clipboard.
  const copied = navigator.clipboard?.writeText(location.href).then(
    () => true,
    () => false,
  )
  const where = (await copied) ? 'copied' : 'in the address bar'
  tellPeople(`The link is ${where}: it restores the environment, the settings and your text.`)
})
byId('browser').addEventListener('toggle', () => lanes.ask({ ask: 'examine' }, false))
canvas.addEventListener('click', ({ offsetX, offsetY }) => {
  if (begun === null || isPlaying) return
  const { columns, drawn } = layout
  const [column, row] = [
    Math.floor((offsetX / canvas.clientWidth) * columns),
    Math.floor((offsetY / canvas.clientHeight) * (drawn / columns)),
  ]
  lane = Math.min(drawn - 1, row * columns + column)
  if (!isRunning && !isAsked) askFrame(0)
})
document.addEventListener('keydown', (event) => {
  const isFree = event.target === document.body || event.target === canvas
  if (!isFree) return
  if (event.key === ' ') run(!isRunning)
  else if (isPlaying && event.key in scene.play.keys) pressed.add(event.key)
  else if (isPlaying && event.key === 'Escape') setPlaying(false)
  else return
  event.preventDefault()
})
document.addEventListener('keyup', (event) => pressed.delete(event.key))
addEventListener('blur', () => pressed.clear())

if (!('transferControlToOffscreen' in canvas)) tellPeople('This page needs a browser with OffscreenCanvas.', true)
const offscreen = canvas.transferControlToOffscreen()
paint({ ask: 'canvas', canvas: offscreen }, [offscreen])
new ResizeObserver(resize).observe(canvas)
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', color)
color()
resize()

const shared = read(location.hash)
if (shared.seed !== undefined) seed.value = String(shared.seed)
if (shared.environment === OWN && typeof shared.code === 'string') {
  code.value = shared.code
  isForeign = shared.code !== SAMPLE
}
const isKnown = shared.environment === OWN || scenes.some(({ id }) => id === shared.environment)
choose(isKnown ? shared.environment! : scenes[0]!.id, shared.tuning ?? null)
requestAnimationFrame(next)
