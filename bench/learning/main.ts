/** `npm run bench -- learning`: whole trainings by the presets, judged over fresh episodes. */
import { reportRoom } from '../report.ts'
import { learnAll } from './figures.ts'
import { tasks } from './tasks.ts'

reportRoom('learning', await learnAll(tasks))
