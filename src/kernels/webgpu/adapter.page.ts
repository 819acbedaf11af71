/** The body of `adapter.ts` in a page. */
import type * as node from './adapter.ts'

export const findGpu: typeof node.findGpu = async () => {
  const { gpu } = navigator
  if (gpu === undefined) throw new Error('this browser has no WebGPU, or the page is not from a secure origin')
  return { gpu, version: 'WebGPU of the browser' }
}
