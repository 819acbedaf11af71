/** The body of `starters.ts` in a page, which has no packages to start tfjs from. Our own shaders (`device=webgpu`) need none. */
import type * as node from './starters.ts'

const start = async (): Promise<never> => {
  throw new Error('a page has no devices of tfjs')
}

export const starters: typeof node.starters = {
  'tfjs-node-gpu': start,
  'tfjs-node': start,
  webgpu: start,
  wasm: start,
  cpu: start,
}
