/** A worker that compares mathematical answers. It is killed where one comparison takes too long. */
import { compareAnswers, type MathsTask } from './comparison.ts'
import { serve } from './serve.ts'

serve<MathsTask>((task) => ({ answer: compareAnswers(task) }))
