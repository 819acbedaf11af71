// Vitest for mutation runs: the tests of one room, as scripts/mutate/main.mjs names them.
import { defineConfig } from 'vitest/config'
import suite from '../../vitest.config.ts'
import { NOT_RUN } from './sample.mjs'

/** StrykerJS looks at tests alone: it has to be told of files that could not be loaded, and of hooks that failed. */
class UnloadedFiles {
  onInit(vitest) {
    this.state = vitest.state
  }

  onTestRunEnd(modules) {
    for (const { moduleId, task } of modules) {
      if (task.result?.state === 'fail' && !hasFailedTest(task)) {
        this.state.errorsSet.add(new Error(`${NOT_RUN} of ${moduleId}`))
      }
    }
  }
}

function hasFailedTest({ type, result, tasks = [] }) {
  return (type === 'test' && result?.state === 'fail') || tasks.some(hasFailedTest)
}

const { plugins, resolve } = suite({ mode: 'test', command: 'serve' })

/** Tests that take the package as it is built get its source, in which the faults are. */
const sourceForBuilt = {
  name: 'source-for-built',
  enforce: 'pre',
  async resolveId(id, importer) {
    const built = /^(.*\/)dist\/(src\/.*)\.js$/.exec(id)
    return built === null ? null : this.resolve(`${built[1]}${built[2]}.ts`, importer, { skipSelf: true })
  },
}

export default defineConfig({
  plugins: [...plugins, sourceForBuilt],
  resolve,
  test: {
    include: JSON.parse(process.env.MUTATE_TESTS ?? '[]'),
    exclude: JSON.parse(process.env.MUTATE_WITHOUT ?? '[]'),
    testTimeout: 120_000,
    // Properties over whole kernels: few of their cases, since they run once for each fault; of the largest none.
    env: { LAW_SHARE: '0.04' },
    hookTimeout: 300_000,
    reporters: [new UnloadedFiles()],
  },
})
