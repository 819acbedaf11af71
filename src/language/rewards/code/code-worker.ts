/** A worker that runs programs of unknown origin. It is killed where one call takes too long. */
import { serve } from '../../../base/threads/serve.ts'
import { type CodeTask, runProgram } from './interpreter.ts'

serve<CodeTask>(async (task) => ({ answer: await runProgram(task) }))
