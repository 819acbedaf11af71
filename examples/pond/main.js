/** The page of the pond: draws with three.js what lies in the shared memory, and steers the pike. */
import { query } from 'bitecs'
import * as three from 'three'
import { Alga, createPond, Fish, NUM_ALGAE, NUM_FISH, Pike, STEP_S } from './pond.ts'

const byId = (id) => document.getElementById(id)
const say = (message) => {
  byId('keys').textContent = message
}
addEventListener('error', ({ error, message }) => say(error?.message ?? message))
if (!crossOriginIsolated)
  throw new Error('This page lacks the headers by which it may share memory; see vite.config.js.')
const pond = createPond()
const { Position, Heading, Age, Steering, caught, eaten, steps, frame, waits } = pond
const [pike] = query(pond, [Pike])
waits[0] = 1
Steering.turn[pike] = Number.NaN

const worker = new Worker(new URL('./learn.ts', import.meta.url), { type: 'module' })
worker.postMessage(pond.memory)
worker.addEventListener('message', ({ data }) => {
  if (data.message !== undefined) say(data.message)
  else byId('steps').textContent = data.steps.toLocaleString('en-US')
})
worker.addEventListener('error', ({ message }) => say(message || 'The worker in which the fish learn could not start.'))

const canvas = document.querySelector('canvas')
const renderer = new three.WebGLRenderer({ canvas, antialias: true })
const scene = new three.Scene()
scene.background = new three.Color('#06202b')
const camera = new three.OrthographicCamera()
camera.position.z = 5

/** A fish that looks to the right: a body and a tail. */
function fishShape(size) {
  const shape = new three.Shape()
  shape.moveTo(size, 0)
  shape.quadraticCurveTo(0.3 * size, 0.55 * size, -0.6 * size, 0.05 * size)
  shape.lineTo(-size, 0.4 * size)
  shape.lineTo(-size, -0.4 * size)
  shape.lineTo(-0.6 * size, -0.05 * size)
  shape.quadraticCurveTo(0.3 * size, -0.55 * size, size, 0)
  return new three.ShapeGeometry(shape, 6)
}

const bottom = new three.Mesh(new three.PlaneGeometry(1.03, 1.03), new three.MeshBasicMaterial({ color: '#0b3a47' }))
bottom.position.set(0.5, 0.5, -1)
const fish = new three.InstancedMesh(fishShape(0.013), new three.MeshBasicMaterial(), NUM_FISH)
const algae = new three.InstancedMesh(
  new three.CircleGeometry(0.006, 12),
  new three.MeshBasicMaterial({ color: '#6fbf73' }),
  NUM_ALGAE,
)
const hunter = new three.Mesh(fishShape(0.035), new three.MeshBasicMaterial({ color: '#e4572e' }))
for (const mesh of [fish, algae]) mesh.frustumCulled = false
scene.add(bottom, algae, fish, hunter)

const matrix = new three.Matrix4()
const color = new three.Color()
const [young, old] = [new three.Color('#7fb7d6'), new three.Color('#ffd166')]

/** The system that draws: entities of bitecs become instances. */
function draw() {
  for (const [i, e] of query(pond, [Alga]).entries()) {
    algae.setMatrixAt(i, matrix.makeTranslation(Position.x[e], Position.y[e], 0))
  }
  for (const [i, e] of query(pond, [Fish]).entries()) {
    fish.setMatrixAt(i, matrix.makeRotationZ(Heading.angle[e]).setPosition(Position.x[e], Position.y[e], 1))
    // Who has lived for ten seconds is golden.
    fish.setColorAt(i, color.copy(young).lerp(old, Math.min(1, Age.steps[e] / 600)))
  }
  hunter.position.set(Position.x[pike], Position.y[pike], 2)
  hunter.rotation.z = Heading.angle[pike]
  for (const mesh of [fish, algae]) mesh.instanceMatrix.needsUpdate = true
  fish.instanceColor.needsUpdate = true
  renderer.render(scene, camera)
}

function resize() {
  const { clientWidth: width, clientHeight: height } = canvas
  renderer.setPixelRatio(Math.min(2, devicePixelRatio))
  renderer.setSize(width, height, false)
  const [across, up] = [Math.max(1, width / height) / 2 + 0.02, Math.max(1, height / width) / 2 + 0.02]
  Object.assign(camera, { left: 0.5 - across, right: 0.5 + across, top: 0.5 + up, bottom: 0.5 - up })
  camera.updateProjectionMatrix()
}
addEventListener('resize', resize)
resize()

const pressed = new Set()
let steeredAt = Number.NEGATIVE_INFINITY
addEventListener('keydown', ({ key }) => pressed.add(key.toLowerCase()))
addEventListener('keyup', ({ key }) => pressed.delete(key.toLowerCase()))
addEventListener('blur', () => pressed.clear())

/** The system of the player: what is pressed steers the pike. */
function steer(now) {
  const wanted = Number(pressed.has('arrowleft')) - Number(pressed.has('arrowright'))
  if (wanted !== 0) steeredAt = now
  Steering.turn[pike] = now - steeredAt < 3000 ? wanted : Number.NaN
  Atomics.store(waits, 0, pressed.has('t') ? 0 : 1)
}

/** Shows how fish fare, in each second of the game. */
const counts = []
function count() {
  if (counts.length > 0 && steps[0] - counts.at(-1)[0] < 1 / STEP_S) return
  counts.push([steps[0], caught[0], eaten[0]])
  if (counts.length > 11) counts.shift()
  const [first, last] = [counts[0], counts.at(-1)]
  const [seconds, ate, died] = [(last[0] - first[0]) * STEP_S, last[2] - first[2], last[1] - first[1]]
  if (seconds === 0) return
  byId('caught').textContent = ((10 * died) / seconds).toFixed(1)
  byId('eaten').textContent = ((10 * ate) / seconds / NUM_FISH).toFixed(2)
}

function next(now) {
  requestAnimationFrame(next)
  steer(now)
  Atomics.add(frame, 0, 1)
  Atomics.notify(frame, 0)
  count()
  draw()
}
requestAnimationFrame(next)
// For a look from the browser's console.
globalThis.pikeAt = () => [Position.x[pike], Position.y[pike]]
