#!/usr/bin/env node
/** The entry point of the command line. */
import { outliveReaders } from './show/streams.ts'
import { runCommand } from './words/command.ts'
import { commandIsDone, tellStrayErrors } from './words/stray.ts'

outliveReaders()
tellStrayErrors()
// Not awaited at the top level: Node would warn about this line if a user's module never settles.
runCommand(process.argv.slice(2)).then(commandIsDone)
