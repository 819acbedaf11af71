/** The compiled module of the kernels of grid games: after the build, a file. A page has another body (`module.page.ts`). */
import { readOwnModule } from '../modules.ts'

export const readGrids = (): Uint8Array<ArrayBuffer> => readOwnModule('grids.shared.wasm')
