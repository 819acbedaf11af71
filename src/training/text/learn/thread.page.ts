/** The body of `thread.ts` in a page, whose conversations have one thread: a world refuses more (`conversations/kind.ts`). */
import type * as node from './thread.ts'

export const textProgram: typeof node.textProgram = () => {
  throw new Error('conversations have one thread in a page')
}
