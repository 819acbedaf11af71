/** The page. It shows what its worker learns, in a world of its own whose lanes act with the newest weights. */
import { createWorld, type EpisodeCohort, mlp, tick, type World } from 'colonnade'
import { Chart } from '../src/telemetry/dashboard/page/chart.ts'
import type { Ask, Format, Told } from './messages.ts'
import { type Scene, scenes } from './scenes.ts'

const byId = <E extends HTMLElement>(id: string) => document.getElementById(id) as E
const canvas = byId<HTMLCanvasElement>('lanes')
const context = canvas.getContext('2d', { alpha: true })!
const choice = byId<HTMLSelectElement>('environment')
const toggle = byId<HTMLButtonElement>('toggle')
const rate = byId<HTMLInputElement>('rate')
const seed = byId<HTMLInputElement>('seed')
const said = byId('said')
const downloads = [...document.querySelectorAll<HTMLButtonElement>('#downloads button')]

const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' })
const chart = new Chart('Mean return of 100 episodes, by steps')
byId('curve').append(chart.figure)

let scene = scenes[0]!
let world: World<EpisodeCohort> | undefined
let isRunning = false
let frame = 0
let curve: { x: number[]; y: number[] } = { x: [], y: [] }
/** Times and step counts of updates, for steps per second. */
let marks: { at: number; steps: number }[] = []

const ask = (asked: Ask) => worker.postMessage(asked)
const learningRate = () => 10 ** Number(rate.value)

for (const { factory } of scenes) choice.add(new Option(factory.id.replace(/-v\d+$/, ''), factory.id))

/** Begins with fresh weights. */
async function begin(next: Scene): Promise<void> {
  scene = next
  const environment = scene.factory()
  const preset = environment.presets.find(({ algorithm }) => algorithm.id === 'ppo')!
  const policy = mlp(preset.policy.parameters)
  const numLanes = scene.numLanes[matchMedia('(max-width: 52rem)').matches ? 1 : 0]
  const started = await createWorld({ environment, policy, numLanes, seed: Number(seed.value) })
  if (scene !== next) return
  world?.close()
  world = started
  curve = { x: [], y: [] }
  marks = []
  byId('caption').textContent = `${numLanes.toLocaleString('en-US')} lanes. ${scene.caption}`
  show({ steps: null, speed: null, episodeReturn: null })
  tellPeople('')
  drawCurve()
  ask({ ask: 'begin', environment: environment.id, seed: Number(seed.value), learningRate: learningRate() })
  for (const button of downloads) button.disabled = true
}

function usePreset({ factory }: Scene): void {
  const { parameters } = factory().presets.find(({ algorithm }) => algorithm.id === 'ppo')!.algorithm
  rate.value = String(Math.log10(Number(parameters.learningRate)))
  showRate()
}

function showRate(): void {
  byId('rate-shown').textContent = learningRate().toExponential(1)
  rate.setAttribute('aria-valuetext', learningRate().toExponential(1))
}

function show(figures: { steps: number | null; speed: number | null; episodeReturn: number | null }): void {
  const whole = (value: number | null) => (value === null ? '–' : Math.round(value).toLocaleString('en-US'))
  byId('return').textContent = figures.episodeReturn === null ? '–' : figures.episodeReturn.toFixed(1)
  byId('steps').textContent = whole(figures.steps)
  byId('speed').textContent = whole(figures.speed)
}

function tellPeople(message: string, isWrong = false): void {
  if (said.textContent === message) return
  said.textContent = message
  said.classList.toggle('wrong', isWrong)
}

function drawCurve(): void {
  const color = getComputedStyle(document.documentElement).getPropertyValue('--accent').trim()
  chart.series = [{ name: 'return', color, raw: null, band: null, ...curve }]
}

function run(isOn: boolean): void {
  isRunning = isOn
  toggle.textContent = isOn ? 'Pause' : 'Go on'
  ask({ ask: isOn ? 'go' : 'pause' })
}

worker.addEventListener('message', ({ data }: MessageEvent<Told>) => {
  if (data.told === 'wrong') {
    run(false)
    tellPeople(data.message, true)
    return
  }
  if (data.told === 'file') return download(data.name, data.bytes)
  const { steps, episodeReturn, weights, isSolved } = data
  if (weights !== null && world !== undefined) world.cohort().weights.set(weights)
  const at = performance.now()
  marks = [...marks.filter((mark) => at - mark.at < 1000), { at, steps }]
  if (weights === null) return
  const [first] = marks as [{ at: number; steps: number }]
  const speed = at > first.at ? (1000 * (steps - first.steps)) / (at - first.at) : null
  show({ steps, speed, episodeReturn })
  if (episodeReturn !== null) {
    curve.x.push(steps)
    curve.y.push(episodeReturn)
    drawCurve()
  }
  if (isSolved) tellPeople(`Solved: a mean return of at least ${scene.factory().returnThreshold} over 100 episodes.`)
  for (const button of downloads) button.disabled = false
})
worker.addEventListener('error', (event) => tellPeople(event.message || 'the worker could not start', true))

function download(name: string, bytes: Uint8Array<ArrayBuffer>): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([bytes]))
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
}

/** The columns of the grid of whole rows whose tiles are the largest. */
function columnsFor(numLanes: number, aspect: number): number {
  const { width, height } = canvas
  let best = { columns: 1, tile: 0 }
  for (let columns = 1; columns <= numLanes; columns++) {
    if (numLanes % columns !== 0) continue
    const tile = Math.min(width / columns, ((height * columns) / numLanes) * aspect)
    if (tile > best.tile) best = { columns, tile }
  }
  return best.columns
}

let columns = 1
function resize(): void {
  const { clientWidth, clientHeight } = canvas
  const ratio = Math.min(2, devicePixelRatio)
  canvas.width = Math.max(1, Math.round(clientWidth * ratio))
  canvas.height = Math.max(1, Math.round(clientHeight * ratio))
  if (world !== undefined) columns = columnsFor(world.cohort().numLanes, scene.aspect)
}
new ResizeObserver(resize).observe(canvas)

function draw(): void {
  requestAnimationFrame(draw)
  if (world === undefined || document.hidden) return
  if (isRunning || frame === 0) {
    if (frame % scene.frames === 0) void tick(world)
    frame++
  }
  const looks = getComputedStyle(document.documentElement)
  const [low, high, ground] = ['--fallen', '--accent', '--grid'].map((name) => looks.getPropertyValue(name).trim())
  const cohort = world.cohort()
  const rows = cohort.numLanes / columns
  const [width, height] = [canvas.width / columns, canvas.height / rows]
  context.clearRect(0, 0, canvas.width, canvas.height)
  scene.draw({
    ...{ context, numLanes: cohort.numLanes, columns, width, height },
    ...{ observation: cohort.observation.current as Float32Array, step: cohort.episode.step },
    colors: { low: low!, high: high!, ground: ground! },
  })
}

choice.addEventListener('change', () => {
  const next = scenes.find(({ factory }) => factory.id === choice.value)!
  usePreset(next)
  frame = 0
  void begin(next).then(resize)
})
toggle.addEventListener('click', () => run(!isRunning))
byId('restart').addEventListener('click', () => {
  frame = 0
  if (seed.reportValidity()) void begin(scene)
})
rate.addEventListener('input', showRate)
rate.addEventListener('change', () => ask({ ask: 'rate', learningRate: learningRate() }))
byId('controls').addEventListener('submit', (event) => event.preventDefault())
for (const button of downloads) {
  button.addEventListener('click', () => ask({ ask: 'file', format: button.dataset.format as Format }))
}
document.addEventListener('keydown', (event) => {
  const isFree = event.target === document.body || event.target === canvas
  if (event.key !== ' ' || !isFree) return
  event.preventDefault()
  run(!isRunning)
})

usePreset(scene)
await begin(scene)
resize()
draw()
