#!/usr/bin/env node
/** The command line. */
import { outliveReaders } from './show/streams.ts'
import { runCommand } from './words/command.ts'
import { commandIsDone, tellStrayErrors } from './words/stray.ts'

outliveReaders()
tellStrayErrors()
// Not awaited at the top: Node would warn of this line where a user's module never settles.
runCommand(process.argv.slice(2)).then(commandIsDone)
