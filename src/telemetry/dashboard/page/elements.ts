/** Elements of the page. What they say is always text: no markup is read from anywhere. */

/** Children of an element; null is none. */
export type Child = Node | string | null

/** An element with attributes and children. Attributes that are functions are listeners. */
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

/** Gives an element a color; style attributes are forbidden on this page. */
export function colored<E extends HTMLElement>(made: E, color: string): E {
  made.style.backgroundColor = color
  return made
}

/** A number as it is read: four digits that count, thousands with k. */
export function shortNumber(value: number): string {
  if (!Number.isFinite(value)) return String(value)
  const size = Math.abs(value)
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2)
  if (size >= 1e5) return `${Number((value / 1000).toPrecision(4))}k`
  return String(Number(value.toPrecision(4)))
}
