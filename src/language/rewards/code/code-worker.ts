/** A worker that runs untrusted programs. It is killed if a call takes too long. */
import { serve } from '../../../base/threads/serve.ts'
import { type CodeTask, runProgram } from './interpreter.ts'

serve<CodeTask>(async (task) => ({ answer: await runProgram(task) }))
