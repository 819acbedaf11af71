/** The body of `systems.ts` in a page, which has no cohorts of conversations yet (`world/conversations/kind.page.ts`). */
import type * as node from './systems.ts'

const nothing = (): void => {}

export const conversations: typeof node.conversations = {
  reset: nothing,
  infer: nothing,
  step: nothing,
  store: nothing,
}
