/**
 * How a conversation becomes one text: what stands before, between and after its messages. A model was trained on one such
 * form and understands no other.
 */
import type { Message } from '../environments/text.ts'

/** What a template may be told besides the messages. */
export interface RenderOptions {
  /** Ends the text where the assistant's next message begins, so that the model writes it; default false. */
  readonly addGenerationPrompt?: boolean
  /** Tools as JSON schemas, for templates that tell the model of them. */
  readonly tools?: readonly object[]
}

/** A chat template. */
export interface ChatTemplate {
  /** Where it came from: stands in errors. */
  readonly name: string
  /**
   * The conversation as text.
   * @throws InputError naming the template, where it refuses the messages.
   */
  render(messages: readonly Message[], options?: RenderOptions): string
}
