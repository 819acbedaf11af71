/** The device that runs our own shaders, loaded and started where a policy asks for it. */
import { choice } from '../base/settings.ts'
import type { NetworkShape } from './network-shape.ts'
import type { DeviceUpdate, UpdateOptions } from './webgpu/contract.ts'
import type { startUpdates } from './webgpu/update.ts'

/** The setting of policies that learn with our own kernels or shaders. */
export const learnsOn = choice(
  'none',
  ['none', 'webgpu'],
  'where updates run; none: on the threads of the run; webgpu: by shaders of our own',
)

export type ShaderDevice = ReturnType<typeof shaderDevice>

export function shaderDevice() {
  let make: Awaited<ReturnType<typeof startUpdates>> | undefined
  const holding = new Set<DeviceUpdate>()
  return {
    /**
     * Loads the shaders and starts the device; not in a thread that helps, which only acts. @throws InputError with the reason where it
     * cannot start.
     */
    async prepare(helps: boolean): Promise<void> {
      if (!helps) make ??= await (await import('./webgpu/update.ts')).startUpdates()
    },
    updateOf: (shape: NetworkShape) => (options: UpdateOptions) => make!(shape, options, holding),
    /** Releases the device memory of its updates. */
    release(): void {
      for (const update of holding) update.release()
    },
  }
}
