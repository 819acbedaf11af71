/** The engines that a run can name, besides the one in this process. A page has another body (`engine-factories.page.ts`). */
import { llamaCppEngine } from './servers/llama-cpp.ts'
import { openaiEngine } from './servers/openai.ts'
import { sglangEngine } from './servers/sglang.ts'
import { vllmEngine } from './servers/vllm.ts'
import { tinkerEngine } from './tinker/tinker.ts'

export const engineFactories: readonly unknown[] = [
  vllmEngine,
  sglangEngine,
  llamaCppEngine,
  openaiEngine,
  tinkerEngine,
]
