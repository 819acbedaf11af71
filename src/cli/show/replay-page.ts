/** An episode as one self-contained HTML page: pictures, actions and rewards. */
import { deflateSync } from 'node:zlib'
import { type Picture, pictureColors } from '../../entries/environments.ts'

/** An episode, picture by picture. One more picture than steps shows the last step's result. */
export interface Episode {
  readonly title: string
  readonly pictures: readonly Picture[]
  /** Each step's action, as text, and reward. */
  readonly actions: readonly string[]
  readonly rewards: readonly number[]
}

/** The page. Its pictures are compressed, and the browser decompresses them. */
export function replayPage({ title, pictures, actions, rewards }: Episode, delayMs: number): string {
  const { rows, columns } = pictures[0]!
  const packed = deflateSync(Buffer.concat(pictures.map(({ fields }) => fields))).toString('base64')
  const data = { rows, columns, count: pictures.length, colors: pictureColors, actions, rewards, delayMs, packed }
  // Escape <, so that a title cannot end the script.
  const json = JSON.stringify(data).replaceAll('<', '\\u003c')
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>${escaped(title)}</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 42rem; margin: 1rem auto; padding: 0 1rem; }
h1 { font-size: 1.1rem; }
canvas { width: 100%; image-rendering: pixelated; background: #181a20; border-radius: .5rem; }
.bar { display: flex; gap: .5rem; align-items: center; margin: .5rem 0; }
input { flex: 1; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; font-variant-numeric: tabular-nums; }
dd { margin: 0; }
</style>
<h1>${escaped(title)}</h1>
<canvas role="img" aria-label="the episode"></canvas>
<div class="bar">
<button id="play" type="button">Pause</button>
<button id="back" type="button" aria-label="one step back">◀</button>
<button id="on" type="button" aria-label="one step on">▶</button>
<input type="range" min="0" value="0" aria-label="step">
</div>
<dl>
<dt>step</dt><dd id="step"></dd>
<dt>action</dt><dd id="action"></dd>
<dt>reward</dt><dd id="reward"></dd>
<dt>return so far</dt><dd id="return"></dd>
</dl>
<script type="application/json" id="episode">${json}</script>
<script type="module">
const { rows, columns, count, colors, actions, rewards, delayMs, packed } = JSON.parse(document.getElementById('episode').textContent)
const stream = new Blob([Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0))]).stream()
const fields = new Uint8Array(await new Response(stream.pipeThrough(new DecompressionStream('deflate'))).arrayBuffer())
const canvas = document.querySelector('canvas')
canvas.width = columns
canvas.height = rows
const context = canvas.getContext('2d')
const image = context.createImageData(columns, rows)
const range = document.querySelector('input')
range.max = count - 1
const tell = (id, text) => { document.getElementById(id).textContent = text }
let at = 0
let timer
function show(step) {
  at = Math.min(Math.max(step, 0), count - 1)
  for (let i = 0; i < rows * columns; i++) image.data.set([...colors[fields[at * rows * columns + i]], 255], 4 * i)
  context.putImageData(image, 0, 0)
  range.value = at
  tell('step', at + ' of ' + actions.length)
  tell('action', actions[at] ?? 'none: the episode is over')
  tell('reward', rewards[at] ?? '–')
  tell('return', Number(rewards.slice(0, at).reduce((sum, reward) => sum + reward, 0).toPrecision(6)))
}
function play(on) {
  clearInterval(timer)
  timer = on ? setInterval(() => (at === count - 1 ? play(false) : show(at + 1)), delayMs) : undefined
  tell('play', on ? 'Pause' : 'Play')
}
document.getElementById('play').onclick = () => {
  if (timer === undefined && at === count - 1) show(0)
  play(timer === undefined)
}
document.getElementById('back').onclick = () => { play(false); show(at - 1) }
document.getElementById('on').onclick = () => { play(false); show(at + 1) }
range.oninput = () => { play(false); show(Number(range.value)) }
show(0)
play(!matchMedia('(prefers-reduced-motion: reduce)').matches)
</script>
`
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;')
}
