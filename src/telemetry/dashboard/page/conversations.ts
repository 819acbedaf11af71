/** Conversations as text: a group side by side, with each token colored by a chosen value. */
import type { ShownConversation, ShownGroup, TokenBlock } from '../conversations.ts'
import { colored, element, shortNumber } from './elements.ts'
import { type Ask, FileView } from './run-view.ts'
import { type Coloring, colorings, legends, tokenColor } from './token-colors.ts'

/** Groups per page. */
const COUNT = 1

/** Shows one group of a file at a time. */
export class ConversationsView extends FileView {
  protected readonly folders = ['trajectories']
  protected readonly none = 'This run has no conversations. Set trajectories=last or trajectories=all to keep some.'
  readonly #coloring = element(
    'select',
    { change: () => this.#draw() },
    ...colorings.map((words) => element('option', {}, words)),
  )
  readonly #legend = element('p', { class: 'quiet' })
  #group: ShownGroup | null = null

  constructor(ask: Ask) {
    super(ask, 'conversations', 'Conversations as text', COUNT)
    this.layOut(element('label', {}, 'colored by', this.#coloring))
  }

  protected async fill(query: URLSearchParams): Promise<void> {
    await this.answer('api/conversations', query, (answer) => {
      const group = (answer as { group: ShownGroup | null }).group
      this.#group = group
      this.hasMore = group !== null && group.place + 1 < group.numGroups
      this.#draw()
    })
  }

  #draw(): void {
    const group = this.#group
    if (group === null) {
      this.told.textContent = 'This file has no further conversations.'
      this.shown.replaceChildren()
      return
    }
    const coloring = this.#coloring.value as Coloring
    const { place, numGroups, source, epoch, promptId, answer, numConversations, conversations } = group
    const words = [
      `Group ${place + 1} of ${numGroups}: prompt ${promptId} of epoch ${epoch}${source === '' ? '' : `, of ${source}`}`,
      answer === null ? '' : `right answer ${answer}`,
      numConversations > conversations.length
        ? `the first ${conversations.length} of ${numConversations} conversations`
        : `${numConversations} conversations`,
    ]
    this.told.textContent = words.filter(Boolean).join('; ')
    this.#legend.textContent = legends[coloring]
    const scale = Math.max(0, ...conversations.map(({ advantage }) => Math.abs(advantage ?? 0)))
    const articles = conversations.map((conversation) => articleOf(conversation, coloring, scale))
    this.shown.replaceChildren(this.#legend, element('div', { class: 'group' }, ...articles))
  }
}

function articleOf(conversation: ShownConversation, coloring: Coloring, scale: number): HTMLElement {
  const { member, segment, reward, components, advantage, stopReason, error, blocks, numTokens, completion } =
    conversation
  const number = (value: number | null) => (value === null ? 'unknown' : shortNumber(value))
  const parts = Object.entries(components).map(([name, value]) => `${name} ${number(value)}`)
  const shown = blocks.reduce((sum, { texts }) => sum + texts.length, 0)
  const quiet = (words: string) => (words === '' ? null : element('p', { class: 'quiet' }, words))
  return element(
    'article',
    { class: 'conversation' },
    element('h3', {}, `member ${member}${segment === 0 ? '' : `, segment ${segment}`}: reward ${number(reward)}`),
    quiet([`advantage ${number(advantage)}`, `${numTokens} tokens`, `ended by ${stopReason}`, ...parts].join(', ')),
    error === null ? null : element('p', { class: 'note' }, error),
    ...blocks.map((block, i) =>
      blockOf(block, i === 0, (t) => {
        const { logprobs, lossMask } = block
        return tokenColor(coloring, { logprob: logprobs[t]!, isLearned: lossMask[t] === 1, advantage }, scale)
      }),
    ),
    blocks.length > 0 ? null : element('p', { class: 'tokens' }, completion ?? ''),
    quiet(
      blocks.length === 0
        ? 'This file has no token texts.'
        : shown < numTokens
          ? `${numTokens - shown} more tokens are not shown.`
          : '',
    ),
  )
}

/** Tokens of one turn. The common prompt is collapsed. */
function blockOf(block: TokenBlock, isFirst: boolean, colorOf: (t: number) => string): HTMLElement {
  const { turn, isOfModel, texts, calls } = block
  const spans = (from: number, to: number) =>
    texts.slice(from, to).map((_, i) => tokenOf(block, from + i, colorOf(from + i)))
  const children: HTMLElement[] = []
  let at = 0
  for (const { from, to, said } of calls) {
    children.push(...spans(at, from))
    children.push(element('span', { class: 'call', title: said }, element('b', {}, said), ...spans(from, to)))
    at = to
  }
  children.push(...spans(at, texts.length))
  const tokens = element('p', { class: isOfModel ? 'tokens model' : 'tokens' }, ...children)
  const words = `turn ${turn + 1}, ${isOfModel ? 'the model' : 'input'}`
  if (isFirst && !isOfModel) {
    return element('details', {}, element('summary', { class: 'turn' }, `prompt (${texts.length} tokens)`), tokens)
  }
  return element('div', {}, element('p', { class: 'turn quiet' }, words), tokens)
}

function tokenOf({ texts, logprobs, lossMask }: TokenBlock, t: number, color: string): HTMLElement {
  const logprob = logprobs[t]!
  const facts = [
    logprob === null ? '' : `log-probability ${shortNumber(logprob)}, probability ${shortNumber(Math.exp(logprob))}`,
    lossMask[t] === 1 ? 'trained' : 'not trained',
  ]
  const token = element('span', { title: facts.filter(Boolean).join('; ') }, texts[t]!)
  return color === '' ? token : colored(token, color)
}
