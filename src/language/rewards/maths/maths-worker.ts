/** A worker that compares mathematical answers. It is killed if a comparison takes too long. */
import { serve } from '../../../base/threads/serve.ts'
import { compareAnswers, type MathsTask } from '../comparison.ts'

serve<MathsTask>((task) => ({ answer: compareAnswers(task) }))
