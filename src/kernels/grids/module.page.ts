/** The body of `module.ts` in a page: text in a JavaScript module, which comes with the games alone. */

// @ts-expect-error: the build writes it; it is not among the sources.
import { text } from '../grids-module.js'
import type * as node from './module.ts'

export const readGrids: typeof node.readGrids = () => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))
