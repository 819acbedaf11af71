/** Draws the lanes in a worker of its own, so that neither the page nor the lanes wait for a picture. Where frames come late, it draws fewer lanes. */
import type { AskPainter, Frame, ToldPainter } from './messages.ts'
import { Pace } from './pace.ts'
import { type Colors, columnsFor, type Scene, sceneFor } from './scenes.ts'

/** Milliseconds after the newest frame in which lanes count as moving. */
const MOVING_MS = 300

let context: OffscreenCanvasRenderingContext2D
let colors: Colors
let scene: Scene | undefined
let numLanes = 0
let isPlaying = false
let frames: MessagePort | undefined
let newest: Frame | undefined
/** When it came. */
let cameAt = 0
/** Whether the canvas lacks something that has come. */
let isStale = false
let pace = new Pace(1)
let drawn = 0
let columns = 1

/** Lays the lanes that are drawn out anew, and tells how. */
function layOut(): void {
  const { width, height } = context.canvas
  drawn = pace.allowed
  columns = isPlaying ? numLanes : columnsFor(drawn, scene!.aspect, width, height)
  isStale = true
  const told: ToldPainter = { told: 'layout', columns, drawn }
  postMessage(told)
}

function draw(now: number): void {
  requestAnimationFrame(draw)
  if (scene === undefined) return
  pace.tick(now, performance.now() - cameAt < MOVING_MS)
  if (pace.allowed !== drawn) layOut()
  if (!isStale || newest === undefined) return
  isStale = false
  const { width, height } = context.canvas
  context.clearRect(0, 0, width, height)
  const { observation, taken } = newest
  const tile = { columns, width: width / columns, height: (height * columns) / drawn }
  const size = observation.length / numLanes
  scene.draw({
    ...{ context, numLanes: drawn, ...tile, colors, step: taken },
    observation: observation.subarray(0, drawn * size),
  })
}

addEventListener('message', ({ data }: MessageEvent<AskPainter>) => {
  if (data.ask === 'canvas') {
    context = data.canvas.getContext('2d')!
    requestAnimationFrame(draw)
  } else if (data.ask === 'colors') {
    colors = data.colors
    isStale = true
  } else if (data.ask === 'size') {
    context.canvas.width = data.width
    context.canvas.height = data.height
    if (scene !== undefined) layOut()
  } else {
    frames?.close() // What earlier lanes still send is not drawn.
    frames = data.frames
    newest = undefined
    frames.onmessage = ({ data: frame }: MessageEvent<Frame>) => {
      newest = frame
      cameAt = performance.now()
      isStale = true
    }
    ;({ numLanes, isPlaying } = data)
    scene = sceneFor(data.environment, data.space, data.numActions, data.bounds)
    pace = new Pace(numLanes)
    layOut()
  }
})
