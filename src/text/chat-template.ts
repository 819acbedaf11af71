import type { Message } from '../environments/text.ts'

/** How messages are written for a model. */
export interface ChatTemplate {
  /** The messages as text, with the beginning of the assistant's next one where that is asked. */
  render(messages: readonly Message[], options?: { readonly addGenerationPrompt?: boolean }): string
}
