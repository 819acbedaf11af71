/** The training backends that a run can name, besides this process. A page has another body (`backend-factories.page.ts`). */
import { tinkerBackend } from './tinker-backend.ts'

export const backendFactories: readonly (typeof tinkerBackend)[] = [tinkerBackend]
