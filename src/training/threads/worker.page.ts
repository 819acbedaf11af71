/**
 * The body of `worker.ts` in a page. The build links it with all that it imports into one text (`worker-program.js`): a thread that is made of
 * text can import no module, so all of Colonnade's definitions are in it.
 */
import { algorithms } from '../../algorithms/registry.ts'
import { giveOwn } from '../../base/definition.ts'
import { environments } from '../../environments/registry.ts'
import { wrappers } from '../../environments/wrappers.ts'
import { loadKernels } from '../../kernels/bind.ts'
import { policies } from '../../policies/registry.ts'
import { ownSystems } from '../../systems/registry.ts'
import type { LanesOrder } from './orders.ts'
import { work } from './work.ts'

giveOwn({ ...[...environments, ...wrappers, ...policies, ...algorithms, ...ownSystems] })

addEventListener('message', ({ data }: MessageEvent<LanesOrder>) => {
  work(data, (failure) => postMessage(failure), loadKernels(data.kernels, data.modules))
})
