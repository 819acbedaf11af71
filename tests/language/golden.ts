/** The recorded tokenizers, and what transformers makes of texts with them; see tests/golden/record_tokenizers.py. */
import { readFileSync } from 'node:fs'
import type { Message } from '../../src/environments/text.ts'

export const recorded = ['qwen2', 'llama3', 'smollm', 'llama', 'mistral'] as const

export interface Expected {
  readonly texts: readonly { text: string; ids: number[]; plain: number[]; decoded: string; said: string }[]
  readonly begin: readonly number[]
  readonly conversations: readonly {
    messages: Message[]
    text?: string
    prompt?: string
    ids?: number[]
    error?: string
  }[]
}

export function folderOf(name: string): string {
  return new URL(`../golden/tokenizers/${name}`, import.meta.url).pathname
}

export function expectedOf(name: string): Expected {
  return JSON.parse(readFileSync(`${folderOf(name)}/expected.json`, 'utf8'))
}
