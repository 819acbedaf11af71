/**
 * The request fields of all dialects, in one table. There are three kinds of known fields. Taken ones act. Hints change
 * no answer and are counted. Fields that no engine here supports are refused, unless their value changes nothing. Unknown
 * fields are hints, or refused if the server is strict. Null counts as absent.
 */
import { show, similar } from '../../base/errors.ts'
import { type Body, RequestError } from '../../base/http/server.ts'
import type { Hints } from './hints.ts'

/** OpenAI's chat completions, completions and Responses, and Anthropic's Messages. */
export type DialectName = 'chat' | 'completions' | 'responses' | 'messages'

/** The rule of a field: `taken`, a `hint`, or refused unless it has one of these values. */
type Rule = 'taken' | 'hint' | readonly unknown[]
type Rules = Readonly<Record<string, Rule>>

function each(rule: Rule, ...names: readonly string[]): Rules {
  return Object.fromEntries(names.map((name) => [name, rule]))
}

/** Sampling fields that every dialect honors. */
export const DRAWING = ['temperature', 'top_p', 'top_k', 'min_p', 'seed'] as const

/** Fields that change the logits before tokens are drawn. */
export const CHANGING = [
  ...(['logit_bias', 'frequency_penalty', 'presence_penalty', 'repetition_penalty', 'min_tokens'] as const),
] as const

/** The fields of vLLM, SGLang and llama.cpp for constraints. */
export const GUIDED = [
  ...(['guided_json', 'guided_regex', 'guided_choice', 'guided_grammar', 'structured_outputs'] as const),
  ...(['json_schema', 'regex', 'ebnf', 'grammar'] as const),
] as const

/** Fields with the same meaning in all dialects, whichever documents them. */
const SHARED: Rules = {
  ...each('taken', 'model', 'stream', 'tools', 'tool_choice', ...DRAWING, ...CHANGING),
  ...each('hint', 'metadata', 'user', 'service_tier', 'store', 'safety_identifier', 'client_metadata'),
  ...each('hint', 'prompt_cache_key', 'prompt_cache_retention', 'cache_control', 'cache_salt', 'priority', 'verbosity'),
  // Fields of OpenAI, vLLM, SGLang and llama.cpp that change the distribution of tokens.
  ...each([0], 'mirostat', 'dry_multiplier', 'xtc_probability'),
  ...each([1], 'repeat_penalty', 'typical_p', 'tfs_z', 'best_of'),
  ...each([0], 'top_a', 'epsilon_cutoff', 'eta_cutoff', 'dynatemp_range', 'smoothing_factor', 'top_n_sigma'),
  ...each([[]], 'stop_token_ids', 'bad_words', 'banned_tokens'),
  ...each([false], 'ignore_eos', 'include_stop_str_in_output', 'use_beam_search'),
  ...{ skip_special_tokens: [true], allowed_token_ids: [], samplers: [] },
  // Parameters of the above, without effect by themselves.
  ...each('hint', 'mirostat_tau', 'mirostat_eta', 'xtc_threshold', 'repeat_last_n', 'dynatemp_exponent'),
  ...each('hint', 'dry_base', 'dry_allowed_length', 'dry_penalty_last_n', 'dry_sequence_breakers'),
  ...each([], ...GUIDED, 'structural_tag'),
}

const OPENAI: Rules = each(
  'taken',
  ...GUIDED,
  ...['n', 'stop', 'stream_options', 'max_tokens', 'logprobs', 'request_id'],
  ...['return_token_ids', 'return_weight_versions', 'return_tokens_as_token_ids'],
)

const FIELDS: Readonly<Record<DialectName, Rules>> = {
  chat: {
    ...{ ...SHARED, ...OPENAI },
    ...each('taken', 'messages', 'max_completion_tokens', 'top_logprobs', 'parallel_tool_calls'),
    ...each('taken', 'reasoning_effort', 'thinking', 'enable_thinking', 'chat_template_kwargs'),
    ...{ prompt_logprobs: 'taken', echo: [false] },
    ...{ response_format: 'taken', modalities: [['text']], audio: [], prediction: 'hint' },
    ...{ add_generation_prompt: [true], continue_final_message: [false], functions: [[]], function_call: ['none'] },
    web_search_options: [],
  },
  completions: {
    ...SHARED,
    ...OPENAI,
    ...each('taken', 'prompt', 'response_format', 'echo', 'prompt_logprobs'),
    suffix: [''],
    tools: [[]],
    tool_choice: ['none'],
  },
  responses: {
    ...SHARED,
    ...each('taken', 'input', 'instructions', 'max_output_tokens', 'previous_response_id', 'parallel_tool_calls'),
    ...each('taken', 'reasoning', 'text'),
    ...{ prompt_logprobs: [], echo: [false] },
    ...each('hint', 'include', 'stream_options', 'max_tool_calls'),
    ...{ truncation: ['disabled'], background: [false], top_logprobs: [0], conversation: [], prompt: [] },
    ...{ context_management: [[]], stop: [], n: [1], max_tokens: [], max_completion_tokens: [], response_format: [] },
  },
  messages: {
    ...SHARED,
    ...each('taken', 'messages', 'system', 'max_tokens', 'stop_sequences', 'thinking', 'output_config', 'thread'),
    ...{ prompt_logprobs: [], echo: [false] },
    ...{ container: 'hint', mcp_servers: [[]], context_management: [{}], output_format: [] },
    ...{ stop: [], n: [1], max_completion_tokens: [], response_format: [] },
  },
}

/** Checks a request's fields and counts hints, `within` their parent. @throws RequestError 400 for refused ones. */
export function checkDialect(body: Body, dialect: DialectName, hints: Hints): void {
  const rules = FIELDS[dialect]
  for (const [name, value] of Object.entries(body)) {
    if (value === null || value === undefined) continue
    const rule = Object.hasOwn(rules, name) ? rules[name]! : null
    if (rule === 'taken') continue
    if (rule === null) hints.unknown(name, () => similar(name, Object.keys(rules)))
    else if (rule === 'hint') hints.add(name)
    else if (!rule.some((neutral) => JSON.stringify(neutral) === JSON.stringify(value))) {
      const instead = rule.length === 0 ? 'nothing' : rule.map(show).join(' or ')
      const can = Object.hasOwn(SHARED, name)
        ? `; it supports ${[...DRAWING, ...CHANGING].join(', ')}, stop and max_tokens`
        : ''
      throw new RequestError(
        400,
        `${name}: got ${show(value)}, expected ${instead}: this server cannot do that${can}`,
        {
          ...{ param: name, code: 'unsupported_field' },
        },
      )
    }
  }
}

/** The fields of sampling and of the model, which have the same names in other dialects. */
export function drawingOf(body: Body): Body {
  const given = ['model', ...DRAWING, ...CHANGING].filter((name) => body[name] !== undefined)
  return Object.fromEntries(given.map((name) => [name, body[name]]))
}
