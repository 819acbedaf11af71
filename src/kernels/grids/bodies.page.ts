/** The body of `bodies.ts` in a page, whose builds are all compiled: the names alone, without bodies to call. */
import type * as node from './bodies.ts'
import { type Bodies, bindTwins } from './twins.ts'

export const bodies: typeof node.bodies = bindTwins({} as Bodies, () => 0, {} as typeof node.bodies)
