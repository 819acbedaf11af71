import { DOMParser } from 'linkedom'

/** Parses an SVG text, after checking what the parser would forgive: tags that are not properly nested. */
export function parseSvg(text: string) {
  const open: string[] = []
  for (const [, end, name, selfClosed] of text.matchAll(/<(\/?)([a-zA-Z]+)(?:\s+[\w:-]+="[^"<]*")*\s*(\/?)>/g)) {
    if (end) {
      const last = open.pop()
      if (last !== name) throw new Error(`</${name}> closes <${last}>`)
    } else if (!selfClosed) open.push(name!)
  }
  if (open.length > 0) throw new Error(`<${open.at(-1)}> is not closed`)
  if (text.replaceAll(/<(\/?)([a-zA-Z]+)(?:\s+[\w:-]+="[^"<]*")*\s*(\/?)>/g, '').includes('<')) {
    throw new Error('a < that begins no tag')
  }
  return new DOMParser().parseFromString(text, 'image/svg+xml').documentElement as unknown as Element
}
