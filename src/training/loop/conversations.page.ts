/** The body of `conversations.ts` in a page, which has no cohorts of conversations yet (`world/conversations/kind.page.ts`). */
import { assert } from '../../base/errors.ts'
import type * as node from './conversations.ts'

export const reserveConversations: typeof node.reserveConversations = () => {
  assert(false, 'a page has no conversations')
}
