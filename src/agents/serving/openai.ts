/**
 * OpenAI's completions and chat completions over a model of ours, with vLLM's fields for token ids (`return_token_ids`) and versions
 * of weights (`return_weight_versions`). The engine tokenizes a prompt once; what is told as ids is what it saw and chose.
 */
import type { Route } from '../../base/http/server.ts'
import { chat } from './chat.ts'
import { complete } from './completions.ts'
import type { Naming } from './naming.ts'
import type { ServedModel } from './served-model.ts'

/** The routes of OpenAI's API. */
export function openaiRoutes(served: ServedModel, naming: Naming): Map<string, Route> {
  const created = Math.floor(Date.now() / 1000)
  return new Map<string, Route>([
    [
      'GET /v1/models',
      () => ({
        object: 'list',
        data: naming.names().map((id) => ({
          ...{ id, object: 'model', created, owned_by: 'colonnade', root: served.name },
          max_model_len: served.context,
        })),
      }),
    ],
    ['POST /v1/completions', ({ body, signal }) => complete(served, naming, body, signal)],
    ['POST /v1/chat/completions', ({ body, signal }) => chat(served, naming, body, signal)],
  ])
}
