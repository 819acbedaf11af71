/** Elements of the page. Their contents are always text; markup is never parsed. */

/** A child of an element; null is omitted. */
export type Child = Node | string | null

/** Creates an element with attributes and children. Attributes that are functions become listeners. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string | boolean | ((event: Event) => void)>> = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') made.addEventListener(name, value)
    else if (value !== false) made.setAttribute(name, value === true ? '' : value)
  }
  made.append(...children.filter((child) => child !== null))
  return made
}

/** Creates an element of a picture (SVG). */
export function drawn(tag: string, attributes: Readonly<Record<string, string | number>>, words = ''): SVGElement {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value))
  made.textContent = words
  return made
}

/** Sets an element's color; the page's policy forbids style attributes. */
export function colored<E extends HTMLElement>(made: E, color: string): E {
  made.style.backgroundColor = color
  return made
}

/** Gives a list these choices, unless it has them: an open list stays open. */
export function fill(
  parent: HTMLSelectElement | HTMLDataListElement,
  values: readonly string[],
  words: (value: string) => string,
): void {
  const known = [...parent.children].map((child) => (child as HTMLOptionElement).value)
  if (known.length === values.length && known.every((value, i) => value === values[i])) return
  parent.replaceChildren(...values.map((value) => element('option', { value }, words(value))))
}

/** Sets an element's text if it is another, so that a screen reader does not say it again. */
export function say(made: HTMLElement, text: string): void {
  if (made.textContent !== text) made.textContent = text
}

/** Formats a number with four significant digits, thousands as k. */
export function shortNumber(value: number): string {
  if (!Number.isFinite(value)) return String(value)
  const size = Math.abs(value)
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2)
  if (size >= 1e5) return `${Number((value / 1000).toPrecision(4))}k`
  return String(Number(value.toPrecision(4)))
}

/** Saves a file from the page under this name. */
export function save(name: string, content: Blob): void {
  const href = URL.createObjectURL(content)
  element('a', { href, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(href), 10_000)
}
