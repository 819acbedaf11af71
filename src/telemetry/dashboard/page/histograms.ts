/** Histograms of what an update recorded: rewards, returns, actions and others. */
import type { Histogram } from '../histograms.ts'
import { drawn, element, shortNumber } from './elements.ts'
import { type Ask, FileView } from './run-view.ts'

/** Size of a histogram in pixels. */
const [WIDTH, HEIGHT] = [220, 90]

export class HistogramsView extends FileView {
  protected readonly folders = ['rollouts', 'trajectories']
  protected readonly none =
    'This run has no rows. Set rollouts=last or all (or trajectories=last or all for a language model) to keep some.'

  constructor(ask: Ask) {
    super(ask, 'histograms', 'Histograms of an update', 1)
    this.layOut()
  }

  protected async fill(query: URLSearchParams): Promise<void> {
    await this.answer('api/histograms', query, ({ histograms }) => {
      const all = histograms as Histogram[]
      this.hasMore = false
      this.told.textContent = all.length === 0 ? 'This file has no numbers.' : ''
      this.shown.replaceChildren(element('div', { class: 'histograms' }, ...all.map(pictureOf)))
    })
  }
}

function pictureOf({ name, count, mean, low, high, isWhole, counts }: Histogram): HTMLElement {
  const most = Math.max(...counts)
  const step = WIDTH / counts.length
  const width = isWhole ? 1 : (high - low) / counts.length
  const bars = counts.map((each, i) => {
    const height = (HEIGHT * each) / most
    const bar = drawn('rect', { x: i * step, y: HEIGHT - height, width: Math.max(1, step - 1), height })
    const from = low + i * width
    const range = isWhole ? shortNumber(from) : `${shortNumber(from)} to ${shortNumber(from + width)}`
    bar.append(drawn('title', {}, `${range}: ${each}`))
    return bar
  })
  const words = `${count} numbers from ${shortNumber(low)} to ${shortNumber(high)}, mean ${shortNumber(mean)}`
  const label = `histogram of ${name}: ${words}`
  const picture = drawn('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': label })
  picture.append(...bars)
  return element('figure', {}, element('h3', {}, name), picture, element('figcaption', { class: 'quiet' }, words))
}
