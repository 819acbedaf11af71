/** A worker that runs programs of unknown origin. It is killed where one call takes too long. */
import { type CodeTask, runProgram } from './interpreter.ts'
import { serve } from './serve.ts'

serve<CodeTask>(async (task) => ({ answer: await runProgram(task) }))
