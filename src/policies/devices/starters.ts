/** How each device starts. A page has another body (`starters.page.ts`). */
import type { Backend } from './backend.ts'
import { startCpu, startWasm } from './embedded.ts'
import { startTensorflow } from './tensorflow.ts'
import { startWebgpu } from './webgpu.ts'

type Start = (places?: readonly string[]) => Promise<Backend>

export const starters = {
  'tfjs-node-gpu': (places) => startTensorflow('tfjs-node-gpu', places),
  'tfjs-node': (places) => startTensorflow('tfjs-node', places),
  webgpu: startWebgpu,
  wasm: startWasm,
  cpu: startCpu,
} satisfies Readonly<Record<string, Start>>
