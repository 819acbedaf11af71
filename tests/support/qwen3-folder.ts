import { cp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Random } from '../../src/base/random.ts'
import { saveTransformer } from '../../src/language/transformer/folder.ts'
import { transformer } from '../../src/language/transformer/model.ts'

/**
 * A chat template that behaves as Qwen3's, written from its behavior, without tools: it removes thinking from the
 * assistant's turns before the user's last message, the assistant's last turn always has (maybe empty) thinking, and
 * `enable_thinking=false` begins a turn with empty thinking.
 */
export const QWEN3_TEMPLATE = `{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set asked = namespace(at=messages | length - 1, isOpen=true) %}
{%- for message in messages[::-1] %}
    {%- if asked.isOpen and message.role == 'user' and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set asked.isOpen = false %}
        {%- set asked.at = messages | length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set said = message.content if message.content is string else '' %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + said + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in said %}
            {%- set thought = said.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set said = said.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > asked.at and (loop.last or thought) %}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + said.lstrip('\\n') }}
        {%- else %}
            {{- said }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if said or not loop.first %}{{- '\\n' }}{%- endif %}
            {%- set call = call.function or call %}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + said + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}`

/** What differs from the usual model; `shape` has keys of `config.json`. */
interface Qwen3Options {
  readonly context?: number
  readonly template?: string
  readonly shape?: Readonly<Record<string, number>>
  readonly embeddingScale?: number
}

/**
 * Writes a new small Qwen3 model into a folder, with the recorded tokenizer of Qwen2 (425 ids, `<think>` among them)
 * and the template above.
 */
export async function writeQwen3(
  folder: string,
  { context = 160, template = QWEN3_TEMPLATE, shape = {}, embeddingScale = 1 }: Qwen3Options = {},
): Promise<void> {
  await cp(new URL('../golden/tokenizers/qwen2', import.meta.url).pathname, folder, { recursive: true })
  await writeFile(join(folder, 'chat_template.jinja'), template)
  const model = transformer({
    model_type: 'qwen3',
    vocab_size: 425,
    hidden_size: 16,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    head_dim: 8,
    intermediate_size: 32,
    max_position_embeddings: context,
    rms_norm_eps: 1e-6,
    rope_theta: 1_000_000,
    tie_word_embeddings: true,
    ...shape,
  })
  const weights = new Float32Array(model.numParameters)
  model.initialize(weights, new Random(1), 0)
  const embedding = model.parameters.find(({ name }) => name === 'model.embed_tokens.weight')!
  const [from, to] = [embedding.offset, embedding.offset + embedding.shape[0]! * embedding.shape[1]!]
  for (let i = from; i < to; i++) weights[i]! *= embeddingScale
  await saveTransformer(folder, model, weights)
}
