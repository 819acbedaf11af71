/** The body of `module.ts` in a page: text in a JavaScript module, which comes with the games alone, and which a page's threads are sent. */

// @ts-expect-error: the build writes it; it is not among the sources.
import { text } from '../grids-module.js'
import { ownModule } from '../modules.ts'
import type * as node from './module.ts'

export const readGrids: typeof node.readGrids = ownModule('grids', text)
