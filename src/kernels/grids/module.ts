/** The compiled module of the kernels of grid games: after the build, a file. A page has another body (`module.page.ts`). */
import { ownModule } from '../modules.ts'

export const readGrids = ownModule('grids')
